import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import { waitFor } from "./wait-for.ts";

/** Notifications received over a socket of `sd_notify(3)`. */
export interface Notices {
  readonly all: readonly string[];
  /** Returns the first `count` of them, once received. */
  of(count: number): Promise<readonly string[]>;
}

const LISTENER = `
import json, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
print(json.dumps("listening"), flush=True)
while True:
    print(json.dumps(s.recv(4096).decode()), flush=True)`;

/** Acts as the service manager, with a real datagram socket, which Node does not offer. */
export async function listenForNotices(path: string): Promise<Notices> {
  const child = spawn("python3", ["-c", LISTENER, path], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(JSON.parse(line) as string));
  await waitFor("the listener", () => lines.shift() !== undefined);
  return { all: lines, of: (count) => waitFor(`${count} notices`, () => (lines.length < count ? undefined : lines)) };
}
