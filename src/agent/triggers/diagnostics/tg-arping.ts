import { HostError } from "../../../errors.ts";
import type { Exec } from "../../../host/process/exec.ts";
import type { Files } from "../../../host/files/files.ts";
import { TgArping } from "../../../protocol/triggers/bodies.ts";
import { needLink } from "../tools/known-link.ts";
import type { StreamTrigger } from "../execution/trigger.ts";

const COUNT = 5;
const SECONDS = 10;
/** iputils' arping has other options: `-i` is absent, or takes a number. */
const WRONG_PROGRAM = /invalid option -- 'i'|^arping: invalid argument/mu;

/**
 * Asks on a link for the owner of an IPv4 address, with arping(8) by Habets; more than one MAC is a conflict, and no answer a result (exit
 * status 1).
 */
export function tgArping(exec: Pick<Exec, "spawn">, files: Files): StreamTrigger<TgArping> {
  return {
    event: "tg-arping",
    kind: "stream",
    request: TgArping,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: true,
    agents: false,
    async handle(request, { signal, emit }) {
      await needLink(files, request.iface, "iface");
      const probe = exec.spawn("arping", arpingArguments(request), { signal });
      let complaint = "";
      for await (const chunk of probe.output) {
        // Output arrives in pieces.
        if (chunk.kind === "stderr") complaint = (complaint + chunk.data).slice(-1024);
        if (WRONG_PROGRAM.test(complaint)) throw wrongProgram();
        await emit(chunk);
      }
      return { exitCode: await probe.exitCode };
    },
  };
}

/** Limits to five probes and ten seconds. */
function arpingArguments({ iface, host }: TgArping): string[] {
  return ["-i", iface, "-c", String(COUNT), "-w", String(SECONDS), "--", host];
}

function wrongProgram(): HostError {
  const message = "the installed arping is that of iputils, which lacks the needed options: install the package arping";
  return new HostError("tool-missing", message, { details: { tool: "arping", package: "arping" } });
}
