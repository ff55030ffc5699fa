// Questions at a constant rate: a slow answer does not slow the next question down.
import http from "k6/http";
import { check } from "k6";
import exec from "k6/execution";

const questions = JSON.parse(open(__ENV.QUESTIONS));

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
  const path = questions[exec.scenario.iterationInTest % questions.length];
  const headers = { Authorization: __ENV.TOKEN };
  const answer = http.get(__ENV.BASE + path, { headers });
  check(answer, { ok: (one) => one.status === 200 });
}
