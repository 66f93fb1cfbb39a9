import { z } from "zod";
import { InputError } from "../../errors.ts";
import { hostFiles } from "../../host/files/files.ts";
import {
  requireOwner,
  requireSettled,
  requireUnused,
  RESET_FILE,
  wipeableState,
} from "../../host/files/state-directory.ts";
import { probeSocket } from "../../host/net/unix-socket.ts";
import { holdfastCommand } from "../../lib/text/command-line.ts";
import { plainLine, safeJson } from "../../lib/text/terminal-text.ts";
import { ResetAnswer, socketPath, ADMIN_SOCKET } from "../../protocol/local/api.ts";
import { Status } from "../../protocol/local/answers.ts";
import { MANAGED_OVERLAY, OVERLAY_SOCKET } from "../../protocol/overlay/overlay.ts";
import { adminRequest, ask } from "../frame/client.ts";
import { untilAnew } from "../frame/until-anew.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";

const ResetOutput = z.object({
  schema: z.literal(1),
  stateDir: z.string(),
  factory: z.boolean(),
  /** The program that did it: the running agent, which then restarts, or this command. */
  by: z.enum(["agent", "command"]),
  /** Whether the control plane has acknowledged it. */
  isReported: z.boolean(),
  /** Whether this machine was registered when the reset began, as far as that can be read. */
  wasRegistered: z.boolean(),
  /** Names below the state directory, and whole paths of files elsewhere; absent if the agent did it. */
  removed: z.array(z.string()).optional(),
  /** Whether a running overlay was stopped; absent if the agent did it. */
  overlayEnded: z.boolean().optional(),
  /** Things that could not be removed from the machine, a line each. */
  left: z.array(z.string()),
});
type ResetOutput = z.infer<typeof ResetOutput>;

/** State directory of a managed install, whose overlay has another one. */
const MANAGED_STATE_DIR = "/var/lib/holdfast";

export const resetVerb: Verb = {
  name: "reset",
  summary: "permanently remove this node's identity and configuration, or everything with --factory",
  about:
    "Reports to the control plane that the node deregisters, stops its services, removes its containers, and restarts without " +
    "an identity; works with and without a running agent. The data store, volumes, images and the machine's network stay; with " +
    "--factory only images do, and a machine that is reached through the network that Holdfast set is cut off. Asks for the node's name first. " +
    "An interrupted reset continues when the agent starts, or with the next reset.",
  arguments: [],
  options: {
    factory: { help: "also remove volumes, the data store and the network that Holdfast set" },
    yes: { short: "y", help: "do not ask" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "timeout"],
  example: "holdfast reset --yes",
  timeoutSeconds: 120,
  output: ResetOutput,
  async run(call) {
    const { isJson, runDir } = call.settings;
    const isLive = (await probeSocket(socketPath(runDir, ADMIN_SOCKET))) === "live";
    const output = isLive ? await resetByAgent(call) : await resetHere(call);
    call.terminal.out(isJson ? `${safeJson(output)}\n` : summary(output, call));
    return "ok";
  },
};

/** Requests a reset from the running agent, and waits until it has restarted. */
async function resetByAgent(call: Call): Promise<ResetOutput> {
  const factory = call.values["factory"] === true;
  const status = await ask(call, { method: "GET", path: "/v1/status", socket: ADMIN_SOCKET }, Status);
  await confirm(call, { stateDir: status.state.stateDir, name: status.node?.name, factory });
  const { startedAt, stateDir, isReported } = await ask(call, adminRequest("/v1/reset", { factory }), ResetAnswer);
  const seconds = call.settings.timeoutMs / 1000;
  const goesOn = "the agent continues it, also after a restart; see its log";
  const late = `the reset is not done after ${seconds} s: ${goesOn}`;
  const { faults } = await untilAnew(call, startedAt, late);
  const left = faults.flatMap(({ code, message }) => (code === "reset-incomplete" ? [message] : []));
  return { schema: 1, stateDir, factory, by: "agent", isReported, wasRegistered: status.node !== null, left };
}

/** Resets the node without an agent. */
async function resetHere(call: Call): Promise<ResetOutput> {
  const { stateDir, runDir } = call.settings;
  const factory = call.values["factory"] === true;
  requireOwner(stateDir);
  if (!(await isAnythingLeft(call, factory))) {
    const nothing = { removed: [], overlayEnded: false, left: [] };
    return { schema: 1, stateDir, factory, by: "command", isReported: false, wasRegistered: false, ...nothing };
  }
  requireUnused(stateDir);
  await requireSettled(hostFiles(), stateDir);
  const readIdentity = await call.offline.readIdentity?.();
  const name = (await readIdentity?.(stateDir))?.name;
  await confirm(call, { stateDir, name, factory });
  const reset = await call.offline.reset?.();
  if (reset === undefined)
    throw new InputError("not-supported", "this program cannot reset a node without its agent: start the agent first");
  const done = await reset({ stateDir, runDir }, { factory });
  const { removed, left } = done;
  const { overlayEnded } = done;
  return {
    schema: 1,
    stateDir,
    factory,
    by: "command",
    isReported: false,
    wasRegistered: name !== undefined,
    removed: [...removed],
    overlayEnded,
    left: [...left],
  };
}

/** Reports whether there is state, a reset that was cut short, or an overlay that still serves. */
async function isAnythingLeft({ settings: { stateDir, runDir } }: Call, factory: boolean): Promise<boolean> {
  const names = await hostFiles().list(stateDir);
  if (wipeableState(stateDir).length > 0 || names.includes(RESET_FILE) || (factory && names.length > 0)) return true;
  const places = stateDir === MANAGED_STATE_DIR ? [runDir, MANAGED_OVERLAY.runDir] : [runDir];
  const found = await Promise.all(places.map((place) => probeSocket(`${place}/${OVERLAY_SOCKET}`)));
  return found.includes("live");
}

interface Subject {
  readonly stateDir: string;
  readonly name: string | undefined;
  readonly factory: boolean;
}

const PLAIN =
  "its identity and keys, its configuration, its journal and what it has yet to report; it stops serving, and its containers are removed.\n" +
  "The data store, volumes, images and the machine's network stay";
const FACTORY =
  "its identity and keys, its configuration, its journal and what it has yet to report, its containers, ALL VOLUMES AND THE DATA STORE,\n" +
  "and the network that it has set: a machine that is reached through it is cut off. Images, and the local settings in agent.json, stay";

/** Asks the user to type the node's name (`reset` if it is unknown), unless `--yes` was given. */
async function confirm({ terminal, signal, values }: Call, { stateDir, name, factory }: Subject): Promise<void> {
  if (values["yes"] === true) return;
  const word = name ?? "reset";
  const what = factory ? FACTORY : PLAIN;
  const whose = name === undefined ? `the node in ${stateDir}` : `${plainLine(name)} (${stateDir})`;
  terminal.err(`This permanently removes, of ${whose}: ${what}.\nType ${plainLine(word)} to continue: `);
  const answer = await terminal.readLine(signal);
  if (answer?.trim() === word) return;
  throw new InputError("not-confirmed", `'${word}' was not typed: nothing was changed`);
}

function summary(output: ResetOutput, call: Call): string {
  const { stateDir, factory, by, isReported, wasRegistered, removed, overlayEnded, left } = output;
  const again = holdfastCommand("register <license>", call.settings.given);
  if (!wasRegistered && removed?.length === 0 && overlayEnded !== true && left.length === 0) {
    return `this node is not registered, and there is nothing to reset in ${stateDir}: register it with a license, by '${again}'\n`;
  }
  const end = overlayEnded === true ? ", and stopped the overlay" : "";
  const unreported = wasRegistered ? "nothing was reported to the control plane" : "it was not registered";
  const reported = isReported ? "the control plane knows" : unreported;
  const what =
    by === "agent"
      ? `the agent has ${factory ? "reset this node to factory settings" : "reset this node"} (${reported})`
      : `wiped ${(removed ?? []).join(", ") || "nothing"} in ${stateDir}${end}`;
  const rest = left.map((line) => `left: ${plainLine(line)}\n`).join("");
  return `${what}: register the node anew with a new license, by '${again}'\n${rest}`;
}
