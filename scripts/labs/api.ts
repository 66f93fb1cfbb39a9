// The controller's HTTP API, called from inside the lab's internet, since nothing of the lab is reachable from outside.
import { randomUUID } from "node:crypto";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { addressOf, CONTROLLER, CONTROLLER_PORT, INTERNET, type Layout } from "./layout.ts";
import type { Network } from "./network.ts";
import { LabError, runAside } from "./shell.ts";

export interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Returns the origin of the controller, for nodes and callers. */
export function originOf({ hosts }: Layout): string {
  const controller = hosts.find(({ role }) => role === "controller");
  if (controller === undefined) throw new LabError("a lab without a controller");
  return `https://${addressOf(controller)}:${CONTROLLER_PORT}`;
}

/** One call with the admin's key; a request that is not answered is a `LabError`, whatever its status is an answer. */
export async function callApi(
  lab: { readonly dir: string; readonly network: Network; readonly layout: Layout },
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer> {
  const key = readFileSync(join(lab.dir, CONTROLLER, "admin.key"), "utf8").trim();
  const quoted = (text: string): string => JSON.stringify(text);
  // What a line of curl's configuration holds is bounded, a file is not.
  const file = resolve(lab.dir, `body-${randomUUID()}.json`);
  // Through standard input, so that no list of processes shows the key. The certificate is the controller's own.
  const config = [
    `url = ${quoted(`${originOf(lab.layout)}${path}`)}`,
    `request = ${quoted(method)}`,
    `header = ${quoted(`Authorization: ${key}`)}`,
    "silent\nshow-error\ninsecure\ngloboff\nmax-time = 60",
    `write-out = ${quoted("\n%{http_code}")}`,
    ...(body === undefined ? [] : [`header = "content-type: application/json"`, `data-binary = ${quoted(`@${file}`)}`]),
  ].join("\n");
  if (body !== undefined) writeFileSync(file, textOf(body), { mode: 0o600, flag: "wx" });
  try {
    const output = await runAside([...lab.network.on(INTERNET), "curl", "--config", "-"], config);
    const end = output.lastIndexOf("\n");
    return { status: Number(output.slice(end + 1)), text: output.slice(0, end) };
  } finally {
    rmSync(file, { force: true });
  }
}

const textOf = (body: unknown): string => (typeof body === "string" ? body : JSON.stringify(body));
