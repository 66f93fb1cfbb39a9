import { isAbsolute, resolve } from "node:path";
import { z } from "zod";
import { InputError, SessionError } from "../../errors.ts";
import { requireRoot } from "../../host/process/upgrade-unit.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import {
  ManifestAddress,
  ReleaseCheck,
  UPGRADE_ANSWERS,
  UPGRADE_PATH,
  UpgradeAnswer,
  UpgradeStanding,
  type UpgradeOrder,
} from "../../protocol/documents/release.ts";
import { adminRequest, ask, isAbsent } from "../frame/client.ts";
import type { ExitClass } from "../frame/exit-codes.ts";
import { openInstalled } from "./installed.ts";
import { standingText } from "../text/upgrade-text.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";
import { defined } from "../../lib/defined.ts";

/** A line of `--json`: the answer, then each change of the state; or the result of a check. */
const UpgradeOutput = z.object({
  schema: z.literal(1),
  answer: z.string().optional(),
  standing: UpgradeStanding.optional(),
  check: ReleaseCheck.optional(),
});
type UpgradeOutput = z.infer<typeof UpgradeOutput>;

const LOOK_MS = 500;

export const upgradeVerb: Verb = {
  name: "upgrade",
  summary: "upgrade this node, and show the progress",
  about:
    "Asks for the upgrade as the control plane would, and shows each step until it is over; Ctrl-C only ends the showing. Without an argument the " +
    "manifest is where the local settings say, else at the control plane. The new version has to prove itself, or the old one comes back.",
  arguments: [
    { name: "manifest", isRequired: false, help: "a file or an address of a manifest.jws", complete: "file" },
  ],
  options: {
    check: { help: "only show what is available, and whether it would be installed" },
    force: { help: "also install a version that failed here before, or an older one" },
    stage: { help: "fetch, verify and unpack the release, and leave the switch to a later upgrade" },
    "skip-os": { help: "leave the packages of the operating system as they are" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "timeout", "interrupted"],
  example: "holdfast upgrade --check",
  timeoutSeconds: 30,
  output: UpgradeOutput,
  async run(call) {
    requireRoot("holdfast upgrade");
    const from = addressOf(call.positionals[0]);
    const isForced = call.values["force"] === true;
    if (call.values["check"] === true) return check(call, from, isForced);
    const order = {
      ...defined({ from }),
      isForced,
      skipUnattended: call.values["skip-os"] === true,
      ...(call.values["stage"] === true ? { stageOnly: true } : {}),
    };
    const before = await openInstalled(call.signal).standing();
    const { output } = await handOver(call, order);
    if (call.settings.isJson) print(call, { schema: 1, answer: output.status });
    else call.terminal.out(`${output.status}\n`);
    return followUpgrade(call, output.status === UPGRADE_ANSWERS.already ? undefined : before);
  },
};

/** Returns a manifest's absolute address, since the agent has another working directory. */
function addressOf(given: string | undefined): string | undefined {
  if (given === undefined) return undefined;
  const parsed = ManifestAddress.safeParse(/^[a-z][a-z0-9+.-]*:\/\//i.test(given) ? given : resolve(given));
  if (parsed.success) return parsed.data;
  throw new InputError("usage", `'${given}' ${parsed.error.issues[0]?.message ?? "is no address of a manifest"}`);
}

/** Copies release files of this machine for the upgrade program, which may lack permission to read the originals. */
async function handOver(call: Call, order: UpgradeOrder): Promise<UpgradeAnswer> {
  const { from, isForced } = order;
  const hand = from !== undefined && isAbsolute(from) ? await call.offline.handOverRelease?.() : undefined;
  if (from === undefined || hand === undefined) return askFor(call, order);
  const given = await hand(call.settings.stateDir, { from, isForced }, call.signal);
  try {
    const answer = await askFor(call, given === undefined ? order : { ...order, from: given.from });
    if (answer.output.status === UPGRADE_ANSWERS.already) await given?.discard();
    else given?.release();
    return answer;
  } catch (error) {
    await given?.discard();
    throw error;
  }
}

/** Requests the upgrade from the agent, or runs it without one. */
async function askFor(call: Call, order: UpgradeOrder): Promise<UpgradeAnswer> {
  try {
    return await ask(call, adminRequest(UPGRADE_PATH, order), UpgradeAnswer);
  } catch (error) {
    if (!isAbsent(error) || call.offline.askUpgrade === undefined) throw error;
    const askUpgrade = await call.offline.askUpgrade();
    return askUpgrade(call.settings, order);
  }
}

async function check(call: Call, from: string | undefined, isForced: boolean): Promise<ExitClass> {
  const checkRelease = await call.offline.checkRelease?.();
  if (checkRelease === undefined) throw new InputError("usage", "--check is not part of this build");
  const found = await checkRelease(call.settings.stateDir, { from, isForced }, call.signal);
  if (call.settings.isJson) {
    print(call, { schema: 1, check: found });
  } else {
    const { version, build, isTaken, reason } = plainValue(found);
    const verdict = isTaken
      ? "it would be taken"
      : `it would not be taken: ${reason?.code ?? ""}: ${reason?.message ?? ""}`;
    call.terminal.out(`version ${version} (${build}): ${verdict}\n`);
  }
  return found.isTaken ? "ok" : "failed";
}

/** Prints each change of the state until the upgrade ends. `before` is the state of the previous upgrade, which is ignored. */
export async function followUpgrade(call: Call, before: UpgradeStanding | undefined): Promise<ExitClass> {
  const { terminal, settings, clock, signal } = call;
  const versions = openInstalled(signal);
  const progress = new Progress(call);
  const startedAt = clock.elapsed();
  let shown = JSON.stringify(before);
  let isHeard = false;
  for (;;) {
    const standing = await versions.standing();
    const text = JSON.stringify(standing);
    if (standing !== undefined && text !== shown) {
      shown = text;
      isHeard = true;
      if (settings.isJson) print(call, { schema: 1, standing });
      else progress.show(standing);
      if (standing.state !== "IN_PROGRESS") return standing.state === "FAILED" ? "failed" : "ok";
    }
    if (!isHeard && clock.elapsed() - startedAt > settings.timeoutMs) {
      throw new SessionError(
        "timeout",
        "nothing was heard of the upgrade: 'systemctl status holdfast-upgrade.service' says what became of it",
      );
    }
    try {
      await clock.sleep(LOOK_MS, signal);
    } catch (error) {
      if (!settings.isJson) terminal.err("the upgrade goes on; holdfast status shows how it stands\n");
      throw error;
    }
  }
}

/** Prints one line per step; on a terminal, the line of the running step is overwritten. */
class Progress {
  readonly #call: Call;
  #isOpen = false;

  constructor(call: Call) {
    this.#call = call;
  }

  show(untrusted: UpgradeStanding): void {
    const { terminal } = this.#call;
    const standing = plainValue(untrusted);
    const isOver = standing.state !== "IN_PROGRESS";
    const begin = this.#isOpen ? "\r\u001b[K" : "";
    this.#isOpen = terminal.isInteractive && !isOver;
    terminal.out(begin + standingText(standing) + (this.#isOpen ? "" : "\n"));
  }
}

function print({ terminal }: Call, output: UpgradeOutput): void {
  terminal.out(`${safeJson(output)}\n`);
}
