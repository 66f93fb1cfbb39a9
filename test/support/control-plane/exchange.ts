import { request } from "node:http";
import { join } from "node:path";
import { json, text } from "node:stream/consumers";
import { ADMIN_SOCKET, READ_SOCKET } from "../../../src/protocol/local/api.ts";

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
export async function readLocal(runDir: string, path: string): Promise<unknown> {
  return (await askSocket(join(runDir, READ_SOCKET), "GET", path)).body;
}

/** Requests a change of the agent on the administrator's socket of its run directory. */
export function changeLocal(runDir: string, path: string, body: object): Promise<Answer> {
  return askSocket(join(runDir, ADMIN_SOCKET), "POST", path, body);
}

function askSocket(socketPath: string, method: string, path: string, body?: object): Promise<Answer> {
  const sent = body === undefined ? "" : JSON.stringify(body);
  const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(sent) };
  return new Promise((resolve, reject) => {
    request({ socketPath, method, path, agent: false, headers }, (response) => {
      json(response).then((got) => resolve({ status: response.statusCode ?? 0, body: got }), reject);
    })
      .once("error", reject)
      .end(sent);
  });
}
