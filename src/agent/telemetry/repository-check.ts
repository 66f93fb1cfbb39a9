import { request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { errnoOf } from "../../errors.ts";

/** Whether the repository answers, or what stood in the way. */
export type RepositoryAnswer =
  | "ok"
  | "name-not-resolved"
  | "port-not-reachable"
  | "certificate-refused"
  | "client-unknown"
  | "unavailable";

const TIMEOUT_MS = 10_000;

/** Asks for the headers of the URL; whatever is answered except a refusal or a fault of the server is fine. */
export async function checkRepository(url: URL, signal: AbortSignal): Promise<RepositoryAnswer> {
  const request = url.protocol === "https:" ? requestHttps : requestHttp;
  const answer = await new Promise<RepositoryAnswer>((resolve) => {
    const call = request(url, { method: "HEAD", agent: false, timeout: TIMEOUT_MS, signal }, (response) => {
      response.resume();
      resolve(answerOf(response.statusCode ?? 0));
    });
    call.on("timeout", () => call.destroy());
    call.on("error", (error) => resolve(failureOf(error)));
    call.end();
  });
  signal.throwIfAborted();
  return answer;
}

function answerOf(status: number): RepositoryAnswer {
  if (status === 401 || status === 403) return "client-unknown";
  return status >= 500 ? "unavailable" : "ok";
}

function failureOf(error: Error): RepositoryAnswer {
  const code = errnoOf(error) ?? "";
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "name-not-resolved";
  return /CERT|SIGNATURE|ALTNAME|ISSUER/.test(code) ? "certificate-refused" : "port-not-reachable";
}
