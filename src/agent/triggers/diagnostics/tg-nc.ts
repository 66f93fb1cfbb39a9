import { HostError } from "../../../errors.ts";
import type { Exec } from "../../../host/process/exec.ts";
import { TgNc } from "../../../protocol/triggers/bodies.ts";
import { probeTcp } from "../tools/tcp-probe.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

const CONNECT_SECONDS = 5;
const DEADLINE_MS = 60_000;
const MAX_OUTPUT_BYTES = 64 * 1024;

/** Tests a TCP port with nc(1) or, if not installed, without it; a refused port is a result. */
export function tgNc(exec: Exec): OneShotTrigger<TgNc> {
  return {
    event: "tg-nc",
    kind: "one-shot",
    request: TgNc,
    deadlineMs: DEADLINE_MS,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    async handle(request, { signal }) {
      try {
        const bounds = { signal, deadlineMs: DEADLINE_MS, maxOutputBytes: MAX_OUTPUT_BYTES };
        const { stdout, stderr, exitCode } = await exec.run("nc", netcatArguments(request), bounds);
        return { output: { message: stdout + stderr, exitCode: String(exitCode) } };
      } catch (error) {
        if (!(error instanceof HostError) || error.code !== "tool-missing") throw error;
        const { message, exitCode } = await probeTcp(request, CONNECT_SECONDS * 1000, signal);
        return { output: { message, exitCode: String(exitCode) } };
      }
    },
  };
}

/** The kernel chooses the source by default: the documented 127.0.0.1 reaches loopback only. */
export function netcatArguments({ host, port, source }: TgNc): string[] {
  const from = source === undefined ? [] : ["-s", source];
  return ["-v", "-z", ...from, "-w", String(CONNECT_SECONDS), "--", host, String(port)];
}
