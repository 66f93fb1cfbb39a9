import { InputError, toError } from "../../errors.ts";
import { hostExec } from "../../host/process/exec.ts";
import { hostReader } from "../../host/reader.ts";
import { resolveSet, systemResolve } from "../../host/net/system-resolve.ts";
import { openAnswers, readTextInput, type AnswerReader } from "../../host/process/text-input.ts";
import { textOf } from "../../lib/formats/json-shape.ts";
import { plainLine, plainValue } from "../../lib/text/terminal-text.ts";
import { momentText } from "../../protocol/local/known-time.ts";
import type { ExitClass } from "../frame/exit-codes.ts";
import { registerWith } from "./register-node.ts";
import { standing as standingOf, statusText } from "../text/status-view.ts";
import { layOut } from "../frame/terminal.ts";
import type { Call } from "../frame/verb.ts";
import { runChecks, type SetupFinding } from "./checks.ts";
import { judgeLicense } from "./license.ts";
import {
  configPath,
  hidePassword,
  localSettings,
  proxiesOf,
  readNics,
  readStanding,
  readTargets,
  readTime,
  restartAgent,
  runningStatus,
  setClock,
  type Standing,
} from "./machine.ts";
import { firstQuestion, questions, type Answers, type Facts, type Question } from "./questions.ts";
import { tryNetwork } from "./try-network.ts";
import { networkLines, wanText, withWan } from "./wan.ts";
import { FILE_MAX_BYTES } from "../frame/license-input.ts";
import { defined } from "../../lib/defined.ts";

const COLUMNS = 80;
const KEEP_WITHIN_MS = 60_000;
const ONLINE_WITHIN_MS = 30_000;
const CHECK_MS = 5000;

interface Dialogue {
  readonly call: Call;
  readonly answers: AnswerReader;
  readonly say: (text: string) => void;
}

/** Sets up the machine by questions; applies nothing without a confirmation. */
export async function runDialogue(call: Call): Promise<ExitClass> {
  const answers = openAnswers();
  const say = (text: string): void => call.terminal.out(`${text}\n`);
  const dialogue: Dialogue = { call, answers, say };
  try {
    return await converse(dialogue);
  } finally {
    answers.close();
  }
}

async function converse(dialogue: Dialogue): Promise<ExitClass> {
  const { call, say } = dialogue;
  const standing = await readStanding(call);
  const facts = await readFacts(call, standing);
  say("Holdfast setup. Enter takes what is in brackets; Ctrl-C ends it and changes nothing more.");
  say(layOut(standingRows(standing, facts), COLUMNS).trimEnd());
  if (facts.whyNoNetwork !== undefined) say(`\n== Network\nIt cannot be set here: ${facts.whyNoNetwork}.`);
  const given = await askAll(dialogue, standing, facts);
  await runAndShowChecks(dialogue, standing, given);
  if (!(await apply(dialogue, standing, given))) return "ok";
  return showStatus(dialogue);
}

async function readFacts(call: Call, { status, node, settings }: Standing): Promise<Facts> {
  const { https, noProxy } = proxiesOf(settings);
  const { least } = await readTime(call);
  const isAgent = node?.type === "Agent";
  const noAgent =
    status === undefined ? "no agent runs, which would apply it; start it, then run this again" : undefined;
  return {
    nics: readNics(),
    proxy: https === undefined ? undefined : hidePassword(https.href),
    noProxy,
    whyNoNetwork: isAgent ? "this node is an agent, and the network of its machine is not its business" : noAgent,
    isRegistered: node !== undefined,
    now: call.clock.now(),
    least,
  };
}

function standingRows(
  { status, node, network }: Standing,
  { proxy, now, least }: Facts,
): (readonly [string, string])[] {
  const lines = networkLines(network);
  const who = node === undefined ? "not registered" : plainLine(`${node.fqdn} (${node.type}, ${node.uid})`);
  return [
    ["node", who],
    ["agent", status === undefined ? "none runs" : `runs, session ${status.session.state}`],
    ["network", lines.length === 0 ? "not set on this machine" : plainLine(lines.join("; "))],
    ["proxy", proxy ?? "none"],
    ["clock", now < least ? `${momentText(now)}, which is before ${momentText(least)}` : momentText(now)],
  ];
}

/** Asks one question after another, and repeats a question after an invalid answer. */
async function askAll(dialogue: Dialogue, standing: Standing, facts: Facts): Promise<Answers> {
  const { call, say } = dialogue;
  let answers: Answers = {};
  let id = firstQuestion(facts);
  let heading = "";
  for (;;) {
    const question: Question = questions[id];
    if (question.step !== heading) say(`\n== ${titleOf(question.step)}`);
    heading = question.step;
    const now = call.clock.now();
    const text = await prompt(dialogue, question.ask(answers, { ...facts, now }));
    const read = question.parse(text, answers, { ...facts, now });
    const parsed = read.is === "file" ? await fromFile(call, question, read.path, answers, { ...facts, now }) : read;
    if (parsed.is !== "answer") {
      say(`  ${parsed.is === "wrong" ? plainLine(parsed.why) : "name a file that holds the license itself"}`);
      continue;
    }
    if (
      parsed.answers.wan !== undefined &&
      answers.wan === undefined &&
      !(await changeNetwork(dialogue, standing, parsed.answers))
    ) {
      answers = {};
      id = "nic";
      continue;
    }
    if (parsed.answers.time !== undefined && answers.time === undefined)
      await changeClock(dialogue, parsed.answers.time);
    answers = parsed.answers;
    if (parsed.next === "done") return answers;
    id = parsed.next;
  }
}

const titleOf = (step: string): string => `${step.charAt(0).toUpperCase()}${step.slice(1)}`;

async function fromFile(
  call: Call,
  question: Question,
  path: string,
  answers: Answers,
  facts: Facts,
): ReturnType<typeof readAs> {
  return readAs(question, answers, facts, () => readTextInput(path, FILE_MAX_BYTES, call.signal));
}

async function readAs(question: Question, answers: Answers, facts: Facts, read: () => Promise<string>) {
  try {
    return question.parse((await read()).trim(), answers, facts);
  } catch (error) {
    return { is: "wrong", why: toError(error).message } as const;
  }
}

/** @throws {InputError} `cancelled` when the input ends. */
async function prompt({ call, answers }: Dialogue, text: string, signal = call.signal): Promise<string> {
  call.terminal.out(text);
  const line = await answers.next(signal);
  if (line === undefined) throw new InputError("cancelled", "the input ended: nothing more was changed");
  return line.trim();
}

async function confirmed(dialogue: Dialogue, text: string, usual: boolean, signal?: AbortSignal): Promise<boolean> {
  for (;;) {
    const answer = (await prompt(dialogue, `${text} ${usual ? "[Y/n]" : "[y/N]"}: `, signal)).toLowerCase();
    if (answer === "") return usual;
    if (answer === "y" || answer === "yes") return true;
    if (answer === "n" || answer === "no") return false;
  }
}

/** Applies the network on trial and asks whether to confirm it; without an answer it is reverted. */
async function changeNetwork(dialogue: Dialogue, { network }: Standing, { wan }: Answers): Promise<boolean> {
  const { call, say } = dialogue;
  if (wan === undefined) return true;
  const wanted = withWan(network, wan);
  say(`  putting in force: ${wanText(wan)}`);
  try {
    const tried = await tryNetwork(call, wanted, () => keepOrNot(dialogue));
    if (tried.is === "rolled-back") {
      say(`  The network is as it was: ${plainLine(tried.why)}`);
      return false;
    }
    await (await localSettings(call)).change(configPath(call), { network: wanted });
    say(tried.is === "kept" ? "  Kept, and in force whenever this machine starts." : "  It was so already.");
    return true;
  } catch (error) {
    call.signal.throwIfAborted();
    if (error instanceof InputError && error.code === "cancelled") throw error;
    say(`  It cannot be: ${plainLine(toError(error).message)}`);
    return false;
  }
}

async function keepOrNot(dialogue: Dialogue): Promise<"keep" | "revert"> {
  const { call } = dialogue;
  const limit = AbortSignal.timeout(KEEP_WITHIN_MS);
  try {
    const signal = AbortSignal.any([call.signal, limit]);
    const text = `Keep it? Without an answer within ${KEEP_WITHIN_MS / 1000} s it is reverted`;
    return (await confirmed(dialogue, text, false, signal)) ? "keep" : "revert";
  } catch (error) {
    call.signal.throwIfAborted();
    if (!limit.aborted) throw error;
    dialogue.say("\n  nobody answered");
    return "revert";
  }
}

async function changeClock({ call, say }: Dialogue, at: number): Promise<void> {
  try {
    await setClock(call, at);
    say("  The clock is set.");
  } catch (error) {
    call.signal.throwIfAborted();
    say(`  It cannot be set: ${plainLine(toError(error).message)}`);
  }
}

/** Returns the changes of the local settings for the answers. */
function changesOf({ proxy, noProxy }: Answers): Record<string, unknown> {
  return { ...defined({ proxy }), ...(noProxy === undefined ? {} : { noProxy: [...noProxy] }) };
}

async function runAndShowChecks({ call, say }: Dialogue, { settings }: Standing, given: Answers): Promise<void> {
  say("\n== Checks");
  const targets = await readTargets(call);
  const merged = { ...settings, ...changesOf(given) };
  const { behind } = await readTime(call);
  const license = given.license === undefined ? undefined : judgeLicense(given.license, { now: 0 }).claims;
  const known = targets?.controlPlane;
  const controlPlane = license ?? (known === undefined ? undefined : { iss: known.url, spki: known.pins });
  const agentProxy = targets?.proxy;
  const isOwn = given.proxy !== undefined || textOf(settings["proxy"]) !== undefined || agentProxy === undefined;
  const proxies = isOwn ? proxiesOf(merged) : { https: new URL(agentProxy.url), noProxy: agentProxy.noProxy };
  const { clock, signal } = call;
  const tools = {
    clock,
    exec: hostExec(clock),
    resolve: resolveSet(targets?.hosts ?? {}, systemResolve()),
    timeoutMs: CHECK_MS,
    signal,
  };
  const repositoryUrl = textOf(settings["repositoryUrl"]);
  const findings = await runChecks({ controlPlane, proxies, repositoryUrl, clockBehind: behind }, hostReader(), tools);
  say(findingsText(findings).trimEnd());
  if (controlPlane === undefined) say("Without a license it is not known which control plane to look for.");
  const bad = findings.filter(({ status }) => status === "fail").length;
  say(bad === 0 ? "No check failed." : `${bad} of ${findings.length} checks failed; what is marked 'fix' may help.`);
}

/** Formats one line per check, with the remedy below it. Pure. */
function findingsText(findings: readonly SetupFinding[]): string {
  const rowsOf = ({ status, check, message, fix }: SetupFinding): (readonly [string, string])[] => [
    [`${status.toUpperCase()} ${check.padEnd(14)}`, message],
    ...(fix === undefined ? [] : [["", `fix: ${fix}`] as const]),
  ];
  const rows = plainValue(findings).flatMap(rowsOf);
  return rows.length === 0 ? "" : layOut(rows, COLUMNS);
}

/** Asks once more, and then writes the settings and registers; false when the person would rather not. */
async function apply(dialogue: Dialogue, standing: Standing, given: Answers): Promise<boolean> {
  const { call, say } = dialogue;
  const local = await localSettings(call);
  const path = configPath(call);
  const changes = changesOf(given);
  const names = await local.change(path, changes, { isDry: true });
  const license = given.license === undefined ? undefined : judgeLicense(given.license, { now: 0 });
  const plans = [
    ...(names.length === 0 ? [] : [`write ${names.join(", ")} to ${path}`]),
    ...(license === undefined
      ? []
      : [
          `register as ${license.claims.name}.${license.claims.domain} (${license.claims.type}) at ${license.claims.iss}`,
        ]),
  ];
  if (plans.length === 0) return true;
  say(`\n== To do\n${plans.map((plan) => `  ${plainLine(plan)}`).join("\n")}`);
  if (!(await confirmed(dialogue, "Do it now?", true))) {
    say("Nothing of it was done.");
    return false;
  }
  await local.change(path, changes);
  if (names.length > 0) {
    const isRestarted = await restartAgent(call, await local.read(path));
    if (isRestarted) say("  The agent was restarted for the settings.");
    else if (standing.status !== undefined) say("  Restart the agent: it reads its settings when it starts.");
  }
  if (license === undefined) return true;
  const { node, by } = await registerWith(call, license.text);
  const next = by === "agent" ? "the agent connects now" : "it connects when the agent starts";
  say(plainLine(`  registered ${node.fqdn} (${node.type}, ${node.uid}): ${next}`));
  return true;
}

async function showStatus({ call, say }: Dialogue): Promise<ExitClass> {
  say("\n== Status");
  const until = call.clock.elapsed() + ONLINE_WITHIN_MS;
  let status = await runningStatus(call);
  while (
    status !== undefined &&
    status.node !== null &&
    status.session.state !== "online" &&
    call.clock.elapsed() < until
  ) {
    await call.clock.sleep(500, call.signal);
    status = await runningStatus(call);
  }
  if (status === undefined) {
    const { node } = await readStanding(call);
    say(
      node === undefined ? "not registered, and no agent runs" : plainLine(`${node.fqdn} (${node.uid}): no agent runs`),
    );
    return node === undefined ? "unregistered" : "degraded";
  }
  say(statusText(status, call.clock.now(), COLUMNS, (_, text) => text).trimEnd());
  return standingOf(status);
}
