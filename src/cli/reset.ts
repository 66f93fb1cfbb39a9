import { z } from "zod";
import { HostError, InputError } from "../errors.ts";
import { readPidFile } from "../host/pid-file.ts";
import { requireOwner, requireUnused, wipeableState, wipeState } from "../host/state-directory.ts";
import { probeSocket } from "../host/unix-socket.ts";
import { holdfastCommand } from "../lib/command-line.ts";
import { plainLine, safeJson } from "../lib/terminal-text.ts";
import { ADMIN_SOCKET, socketPath } from "../protocol/local-api.ts";
import type { Call, VerbProgram } from "./verb.ts";

const ResetOutput = z.object({
  schema: z.literal(1),
  stateDir: z.string(),
  /** Names below the state directory. */
  removed: z.array(z.string()),
});

export const resetVerb: VerbProgram = {
  output: ResetOutput,
  async run(call) {
    const { stateDir, runDir, isJson } = call.settings;
    requireOwner(stateDir);
    if (wipeableState(stateDir).length === 0) {
      throw new InputError("not-registered", `there is nothing to reset in ${stateDir}`);
    }
    await requireStopped(runDir);
    requireUnused(stateDir);
    if (call.values["yes"] !== true) await confirm(call);
    const removed = await wipeState(stateDir);
    const again = holdfastCommand("register <license>", call.settings.given);
    const text = `wiped ${removed.join(", ")} in ${stateDir}: register the node anew with a new license, by '${again}'\n`;
    call.terminal.out(isJson ? `${safeJson({ schema: 1, stateDir, removed })}\n` : text);
    return "ok";
  },
};

async function requireStopped(runDir: string): Promise<void> {
  if ((await probeSocket(socketPath(runDir, ADMIN_SOCKET))) !== "live") return;
  const pid = await readPidFile(runDir, "agent");
  const who = pid === undefined ? "an agent" : `the agent with process id ${pid}`;
  throw new HostError("busy", `${who} still runs in ${runDir}: stop it first`, { details: { runDir } });
}

/** Makes the user type the node's name, or `reset` where the state does not tell it any more. */
async function confirm({ settings, terminal, offline, signal }: Call): Promise<void> {
  const readIdentity = await offline.readIdentity?.();
  const word = (await readIdentity?.(settings.stateDir))?.name ?? "reset";
  terminal.err(
    `This removes the identity and the state in ${settings.stateDir} for good.\nType ${plainLine(word)} to go on: `,
  );
  const answer = await terminal.readLine(signal);
  if (answer?.trim() === word) return;
  throw new InputError("not-confirmed", `'${word}' was not typed: nothing was changed`);
}
