import { dirname, resolve } from "node:path";
import { AgentError, InputError, toError } from "../../errors.ts";
import { hostFiles } from "../../host/files/files.ts";
import { readTextInput } from "../../host/process/text-input.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { plainLine, safeJson } from "../../lib/text/terminal-text.ts";
import type { NodeIdentity } from "../../protocol/documents/claims.ts";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import { SETUP_LIMITS, SetupFile, type SetupReport, type SetupStep } from "../../protocol/local/setup.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { ExitClass } from "../frame/exit-codes.ts";
import { registerWith } from "./register-node.ts";
import type { Call } from "../frame/verb.ts";
import { judgeLicense } from "./license.ts";
import {
  configPath,
  localSettings,
  readStanding,
  readTime,
  restartAgent,
  runningStatus,
  type Standing,
} from "./machine.ts";
import { isSame, outwardOf, type Wanted } from "./wanted.ts";
import { tryNetwork } from "./try-network.ts";
import { FILE_MAX_BYTES } from "../frame/license-input.ts";
import { defined } from "../../lib/defined.ts";

const LOOK_EVERY_MS = 500;
const ANSWER_MS = 10_000;

/** Applies the settings of a file without questions. */
export async function runUnattended(call: Call, path: string): Promise<ExitClass> {
  const steps: SetupStep[] = [];
  const note = (step: SetupStep["step"], state: SetupStep["state"], message: string): void => {
    steps.push({ step, state, message: message.slice(0, 4096) });
    if (!call.settings.isJson) call.terminal.out(`${state.padEnd(9)}  ${step.padEnd(8)}  ${plainLine(message)}\n`);
  };
  const report = (node: NodeIdentity | undefined): void => {
    const output: SetupReport = { schema: 1, steps, node: node ?? null };
    if (call.settings.isJson) call.terminal.out(`${safeJson(output)}\n`);
  };
  const isOnce = call.values["once"] === true;
  if (isOnce) {
    const { node } = await readStanding(call);
    if (node !== undefined) {
      note("register", "unchanged", `this node is ${node.fqdn} already: there is nothing to do`);
      await eraseLicense(path, note, { isDry: call.values["dry-run"] === true });
      report(node);
      return "ok";
    }
  }
  const wanted = await readWanted(call, path);
  const standing = await readStanding(call);
  if (call.values["dry-run"] === true) {
    await foretell(call, wanted, standing, note);
    report(standing.node);
    return "ok";
  }
  await putInForce(call, wanted, standing, note);
  const node = await registered(call, wanted, standing, note);
  if (isOnce && node !== undefined) await eraseLicense(path, note);
  const exit = call.values["wait"] === true ? await untilOnline(call, note) : "ok";
  report(node);
  return exit;
}

type Note = (step: SetupStep["step"], state: SetupStep["state"], message: string) => void;

/** Reads the file and everything that it names, and refuses what cannot be used before anything is changed. */
async function readWanted(call: Call, path: string): Promise<Wanted> {
  const file = await readSetupFile(path, call.signal);
  const { license, licenseFile, profile } = file;
  const changes: JsonObject = { ...file.settings, ...ownOf(file) };
  const wrong: string[] = [];
  const judged = async <T>(field: string, work: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await work();
    } catch (error) {
      call.signal.throwIfAborted();
      wrong.push(`${field}: ${toError(error).message}`);
      return undefined;
    }
  };
  const { least } = await readTime(call);
  const rules = { now: Math.max(call.clock.now(), least), profile };
  const field = license === undefined ? "licenseFile" : "license";
  const read = await judged(field, async () => {
    const base = path === "-" ? "" : dirname(resolve(path));
    const text =
      license ??
      (licenseFile === undefined
        ? undefined
        : await readTextInput(resolve(base, licenseFile), FILE_MAX_BYTES, call.signal));
    return text === undefined ? undefined : judgeLicense(text, rules);
  });
  await judged("settings", async () => (await localSettings(call)).change(configPath(call), changes, { isDry: true }));
  if (read?.claims.type === "Agent" && file.network)
    wrong.push("network: is of an appliance, and the license is for an agent");
  if (wrong.length > 0) throw new InputError("invalid-setup", `${path}: ${wrong.join("; ")}`);
  return { changes, network: file.network, license: read };
}

async function readSetupFile(path: string, signal: AbortSignal): Promise<SetupFile> {
  const text = await readTextInput(path, SETUP_LIMITS.maxBytes, signal);
  let value: unknown;
  try {
    value = parseStrictJson(text, SETUP_LIMITS);
  } catch (error) {
    // The parser's message may quote the license.
    const { message } = toError(error);
    const where = /position \d+(?: \(line \d+ column \d+\))?/.exec(message)?.[0];
    const why =
      error instanceof AgentError && error.code === "invalid-json"
        ? `is not JSON${where === undefined ? "" : `, at ${where}`}`
        : message;
    throw new InputError("invalid-setup", `${path} ${why}`);
  }
  const parsed = SetupFile.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new InputError("invalid-setup", `${path}: ${describeIssues(parsed.error).join("; ")}`);
}

/** Local settings that also have their own field in the file. */
function ownOf({ network, proxy, noProxy }: SetupFile): JsonObject {
  return {
    ...defined({ network, proxy, noProxy }),
  };
}

async function foretell(call: Call, { changes, license }: Wanted, { node }: Standing, note: Note): Promise<void> {
  const names = await (await localSettings(call)).change(configPath(call), changes, { isDry: true });
  if (names.length === 0) note("settings", "unchanged", `${configPath(call)} says so already`);
  else note("settings", "would-do", `${names.join(", ")} of ${configPath(call)} would change`);
  if (license === undefined) note("register", "skipped", "no license is given");
  else if (node === undefined)
    note(
      "register",
      "would-do",
      `this node would become ${license.claims.name}.${license.claims.domain} at ${license.claims.iss}`,
    );
  else note("register", ...alreadyIs(node, license.claims.jti));
}

/** Applies the network first, on trial by the running agent, and confirms it; then writes all local settings. */
async function putInForce(call: Call, wanted: Wanted, standing: Standing, note: Note): Promise<void> {
  const { changes, network } = wanted;
  const local = await localSettings(call);
  const path = configPath(call);
  const isNew = network !== undefined && !isSame(network ?? {}, standing.network);
  if (network !== undefined) {
    if (!isNew) note("network", "unchanged", "it is set so already");
    else if (standing.node !== undefined) note("network", "done", "in force where the control plane gives none");
    else if (standing.status === undefined) note("network", "done", "in force as soon as the agent starts");
    else {
      const tried = await tryNetwork(call, network ?? {}, () => Promise.resolve("keep"));
      if (tried.is === "rolled-back")
        throw new InputError("network-refused", `network: the change was rolled back: ${tried.why}`);
      note("network", "done", "in force now, and whenever this machine starts");
    }
  }
  const names = await local.change(path, changes);
  if (names.length === 0) return note("settings", "unchanged", `${path} says so already`);
  // The running agent already has the network.
  const outward = outwardOf(names);
  const isRestarted = outward.length > 0 && (await restartAgent(call, await local.read(path)));
  const isOpen = outward.length > 0 && !isRestarted && standing.status !== undefined;
  const after = isRestarted ? "; the agent was restarted for it" : isOpen ? "; restart the agent for it" : "";
  return note("settings", "done", `${names.join(", ")} of ${path}${after}`);
}

/** Returns the node's final identity; undefined without a license. */
async function registered(
  call: Call,
  { license }: Wanted,
  { node }: Standing,
  note: Note,
): Promise<NodeIdentity | undefined> {
  if (license === undefined) {
    if (node === undefined) note("register", "skipped", "no license is given");
    return node;
  }
  if (node !== undefined) {
    const [state, message] = alreadyIs(node, license.claims.jti);
    if (state === "failed") throw new InputError("already-registered", `license: ${message}`);
    note("register", state, message);
    return node;
  }
  const { node: made, by } = await registerWith(call, license.text);
  note(
    "register",
    "done",
    `${made.fqdn} (${made.type}, ${made.uid}): ${by === "agent" ? "the agent connects now" : "it connects when the agent starts"}`,
  );
  return made;
}

function alreadyIs({ fqdn, uid }: NodeIdentity, wanted: string): readonly ["unchanged" | "failed", string] {
  if (uid === wanted) return ["unchanged", `this node is ${fqdn} already`];
  return ["failed", `this node is ${fqdn} (${uid}), and the license is for ${wanted}: 'holdfast reset' makes room`];
}

/** Removes the used license from the file. */
async function eraseLicense(path: string, note: Note, { isDry = false } = {}): Promise<void> {
  if (path === "-") return;
  const files = hostFiles();
  const text = await files.read(path);
  if (text === undefined) return;
  let file: SetupFile;
  try {
    file = SetupFile.parse(parseStrictJson(text, SETUP_LIMITS));
  } catch {
    return note("erase", "skipped", `${path} cannot be read: remove it if it holds a license`);
  }
  const { license, ...rest } = file;
  if (license === undefined) return;
  if (isDry) return note("erase", "would-do", `the license would go from ${path}`);
  await files.writeAtomic(path, `${JSON.stringify(rest, undefined, 2)}\n`, 0o600);
  note("erase", "done", `the license is gone from ${path}`);
}

async function untilOnline(given: Call, note: Note): Promise<ExitClass> {
  // However short the patience, an agent that is slow to answer is not one that has no session.
  const call = { ...given, settings: { ...given.settings, timeoutMs: Math.max(ANSWER_MS, given.settings.timeoutMs) } };
  const until = call.clock.elapsed() + given.settings.timeoutMs;
  let why = "no agent runs";
  for (;;) {
    const status = await runningStatus(call);
    if (status?.session.state === "online") {
      note("online", "done", `connected to ${status.session.url ?? "the control plane"}`);
      return "ok";
    }
    if (status !== undefined) why = status.session.reason?.message ?? status.session.state;
    if (call.clock.elapsed() >= until) {
      note("online", "failed", `no session within ${given.settings.timeoutMs / 1000} s: ${why}`);
      return "timeout";
    }
    await call.clock.sleep(LOOK_EVERY_MS, call.signal);
  }
}
