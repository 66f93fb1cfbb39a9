import { request } from "node:http";
import { join } from "node:path";
import { json, text } from "node:stream/consumers";

/** What an HTTP server answers: JSON parsed, else the text. */
export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/** One HTTP exchange, on a connection of its own. */
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

/** What the agent of a run directory answers to whoever may only read. */
export function readLocal(runDir: string, path: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    request({ socketPath: join(runDir, "agent.sock"), path, agent: false }, (response) => {
      json(response).then(resolve, reject);
    })
      .once("error", reject)
      .end();
  });
}
