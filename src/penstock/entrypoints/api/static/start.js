// Shows /openapi.json; a file of its own, because no inline script may run here.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  filter: true,
  tryItOutEnabled: true,
  // nothing is asked of anybody else
  validatorUrl: null,
});
