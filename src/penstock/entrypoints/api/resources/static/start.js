// Shows /openapi.json; a separate file, because the policy forbids inline scripts.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  filter: true,
  tryItOutEnabled: true,
  // no requests to other hosts
  validatorUrl: null,
});
