import { join } from "node:path";
import { z } from "zod";
import { HostError, InputError } from "../errors.ts";
import { hostFiles } from "../host/files.ts";
import { endOverlay } from "../host/overlay-end.ts";
import { readPidFile } from "../host/pid-file.ts";
import { requireOwner, requireUnused, wipeableState, wipeOverlayState, wipeState } from "../host/state-directory.ts";
import { probeSocket } from "../host/unix-socket.ts";
import { holdfastCommand } from "../lib/command-line.ts";
import { plainLine, safeJson } from "../lib/terminal-text.ts";
import { ADMIN_SOCKET, socketPath } from "../protocol/local-api.ts";
import { MANAGED_OVERLAY, OVERLAY_SOCKET } from "../protocol/overlay.ts";
import type { Call, VerbProgram } from "./verb.ts";

const ResetOutput = z.object({
  schema: z.literal(1),
  stateDir: z.string(),
  /** Names below the state directory, and whole paths of what was elsewhere. */
  removed: z.array(z.string()),
  /** Whether an overlay ran, which was ended. */
  overlayEnded: z.boolean(),
});

/** The state directory of a managed install, whose overlay is elsewhere. */
const MANAGED_STATE_DIR = "/var/lib/holdfast";

export const resetVerb: VerbProgram = {
  output: ResetOutput,
  async run(call) {
    const { stateDir, runDir, isJson } = call.settings;
    requireOwner(stateDir);
    const overlays = overlaysOf(call.settings);
    if (wipeableState(stateDir).length === 0 && !(await isAnyLive(overlays))) {
      throw new InputError("not-registered", `there is nothing to reset in ${stateDir}`);
    }
    await requireStopped(runDir);
    requireUnused(stateDir);
    await requireSettled(stateDir);
    if (call.values["yes"] !== true) await confirm(call);
    const { overlayEnded, wiped } = await endOverlays(overlays, call);
    const removed = [...(await wipeState(stateDir)), ...wiped];
    const end = overlayEnded ? ", and ended the overlay" : "";
    const again = holdfastCommand("register <license>", call.settings.given);
    const text = `wiped ${removed.join(", ") || "nothing"} in ${stateDir}${end}: register the node anew with a new license, by '${again}'\n`;
    call.terminal.out(isJson ? `${safeJson({ schema: 1, stateDir, removed, overlayEnded })}\n` : text);
    return "ok";
  },
};

/** A change that is neither proven nor taken back has its only way back there. @throws {InputError} `busy`. */
async function requireSettled(stateDir: string): Promise<void> {
  if ((await hostFiles().read(join(stateDir, "desired/checkpoint.json"))) === undefined) return;
  throw new InputError("busy", "a change of the network is pending: 'holdfast guard restore' takes it back first");
}

interface OverlayPlace {
  readonly runDir: string;
  /** Its own state, where that is not below the node's. */
  readonly stateDir?: string;
}

function overlaysOf({ stateDir, runDir }: Call["settings"]): readonly OverlayPlace[] {
  return stateDir === MANAGED_STATE_DIR ? [{ runDir }, MANAGED_OVERLAY] : [{ runDir }];
}

async function isAnyLive(overlays: readonly OverlayPlace[]): Promise<boolean> {
  const found = await Promise.all(overlays.map(({ runDir }) => probeSocket(join(runDir, OVERLAY_SOCKET))));
  return found.includes("live");
}

/** A node that is no more serves nothing. What the overlays left goes first, lest one that is started again serve it. */
async function endOverlays(
  overlays: readonly OverlayPlace[],
  { settings, clock }: Call,
): Promise<{ readonly overlayEnded: boolean; readonly wiped: readonly string[] }> {
  const wiped: string[] = [];
  let overlayEnded = false;
  for (const { runDir, stateDir } of overlays) {
    if (stateDir !== undefined) wiped.push(...(await wipeOverlayState(stateDir)));
    if (await endOverlay(runDir, clock, settings.timeoutMs)) overlayEnded = true;
  }
  return { overlayEnded, wiped };
}

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
