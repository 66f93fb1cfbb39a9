import { request } from "node:http";
import { join } from "node:path";
import { json, text } from "node:stream/consumers";

/** An HTTP answer: parsed JSON, or else the text. */
export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/** Sends one HTTP request on a connection of its own. */
export function exchange(
  url: string,
  method: string,
  path: string,
  authorization: string,
  body?: unknown,
): Promise<Answer> {
  const type = body === undefined ? {} : { "content-type": "application/json" };
  return new Promise((resolve, reject) => {
    const outgoing = request(
      `${url}${path}`,
      { method, agent: false, headers: { authorization, ...type } },
      (answer) => {
        const isJson = answer.headers["content-type"]?.includes("json") === true;
        const status = answer.statusCode ?? 0;
        text(answer).then((got) => {
          const value: unknown = isJson ? JSON.parse(got) : got;
          resolve({ status, body: value });
        }, reject);
      },
    );
    outgoing.once("error", reject).end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** Returns the agent's answer to a read request on its run directory's socket. */
export function readLocal(runDir: string, path: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    request({ socketPath: join(runDir, "agent.sock"), path, agent: false }, (response) => {
      json(response).then(resolve, reject);
    })
      .once("error", reject)
      .end();
  });
}
