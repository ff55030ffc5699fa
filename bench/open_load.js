// A constant arrival rate: a slow answer does not slow the next request down.
import http from "k6/http";
import { check } from "k6";

export const options = {
  discardResponseBodies: true,
  scenarios: {
    steady: {
      executor: "constant-arrival-rate",
      rate: Number(__ENV.RATE),
      timeUnit: "1s",
      duration: `${__ENV.SECONDS}s`,
      preAllocatedVUs: 100,
      maxVUs: 400,
    },
  },
  summaryTrendStats: ["p(50)", "p(95)", "p(99)"],
};

export default function () {
  const after = Math.floor(Math.random() * Number(__ENV.ROWS) * 0.9);
  const url = __ENV.URL.replace("AFTER", after);
  const answer = http.get(url, { headers: { Authorization: __ENV.TOKEN } });
  check(answer, { ok: (one) => one.status === 200 });
}
