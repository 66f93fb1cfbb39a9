import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished } from "vitest";
import { z } from "zod";
import type { UpgradeStanding } from "../../../src/protocol/documents/release.ts";
import { packageVersion } from "../../../src/lib/build-info.ts";
import { bundled } from "../bundled.ts";
import { readLocal } from "../control-plane/exchange.ts";
import { BUNDLE, FLAGS } from "../machine/programs.ts";
import { tempDir } from "../temp-dir.ts";
import { waitFor } from "../wait-for.ts";
import { runUpgrade, type UpgradeWork } from "./run-upgrade.ts";

export const [OLD, NEW, NEWER] = ["0.1.20260101-0000", "0.1.20260202-0000", "0.1.20260303-0000"] as const;
const BuildInfo = z.object({ version: z.string(), build: z.string() });
export type Behaviour = "good" | "exits" | "exits well" | "hangs" | "never reaches" | "loses" | "dies later";

/** Behavior of the built program: unchanged, or with invalid proofs. */
type Real = "real" | "proves badly";

const LAUNCH = join(import.meta.dirname, "../../../systemd/launch");
/** The program that runs an upgrade on a stage. */
const DRIVER = join(import.meta.dirname, "upgrade-driver.ts");
const AGENT = readFileSync(join(import.meta.dirname, "upgrade-agent.mjs.txt"), "utf8");
/** Time in which an agent must be ready; one that hangs does so for as long. */
const READY_MS = 2500;
const PAUSE_MS = 50;

const LIMITS = {
  settleMs: 300,
  maxElapsedMs: 500,
  againMs: 1500,
  betterMs: 600_000,
  everyMs: 150,
  askEveryMs: 150,
  pendingMs: 800,
  backMs: 60_000,
  probationSeconds: 3600,
};
/** A version that fails by omission is abandoned only after its time limit. */
const WINDOWS: Partial<Record<Behaviour | Real, number>> = {
  hangs: 2500,
  "never reaches": 8000,
  loses: 8000,
};
/** The others have all the time that a busy machine needs. */
const WINDOW_MS = 60_000;

type Limits = typeof LIMITS & { readonly windowMs: number };

interface UpgradeResult {
  readonly code: number;
  readonly output: string;
}

/** An upgrade in this process. */
export interface Upgrade {
  readonly ended: Promise<UpgradeResult>;
  /** Returns what it has printed so far. */
  readonly said: () => string;
  /** Stops it, as a signal stops the program, and waits for its end. */
  readonly stop: () => Promise<UpgradeResult>;
}

/**
 * Directories of an installed Holdfast with stand-ins for agents, the real launcher, and a supervisor in the place of systemd: it counts
 * starts, starts the agent, waits until it is ready, reports its exit, and restarts it.
 */
export class UpgradeStage {
  readonly root = tempDir();
  readonly run = join(this.root, "run");
  readonly lib = join(this.root, "lib");
  readonly versions = join(this.root, "versions");
  readonly state = join(this.root, "state");
  readonly #launch = join(this.root, "launch");
  readonly #controlPlane: string;
  #supervising: { isOver: boolean; done: Promise<void> } | undefined;
  #agent: ChildProcess | undefined;
  #id = 0;
  #windowMs = WINDOW_MS;

  constructor(controlPlane: string) {
    this.#controlPlane = controlPlane;
    for (const dir of [this.run, this.lib, this.versions, join(this.root, "bin")]) mkdirSync(dir, { recursive: true });
    this.make(join(this.lib, "base"), OLD, "good");
    // The manager has a job exactly when the supervisor was asked to stop the agent.
    const systemctl = join(this.root, "bin/systemctl");
    const job = `[ ! -e '${this.run}/job' ] || echo 7`;
    writeFileSync(systemctl, `#!/bin/sh\ncase $* in *Invocation*) cat '${this.run}/shown' ;; *) ${job} ;; esac\n`);
    chmodSync(systemctl, 0o755);
    // No start is old enough here to be forgiven, unless a test sets it.
    writeFileSync(join(this.root, "bin/systemd-run"), "#!/bin/sh\n", { mode: 0o755 });
    const text = readFileSync(LAUNCH, "utf8").replace("PATH=/usr/sbin:", `PATH=${this.root}/bin:/usr/sbin:`);
    writeFileSync(this.#launch, text, { mode: 0o755 });
    onTestFinished(() => this.halt());
  }

  /** Makes a directory of a version; as a release, a request names it. */
  make(dir: string, version: string, behaviour: Behaviour): string {
    mkdirSync(dir, { recursive: true });
    const constants = { VERSION: version, BEHAVIOUR: behaviour, CONTROL_PLANE: this.#controlPlane };
    const head = Object.entries(constants).map(([name, value]) => `const ${name} = ${JSON.stringify(value)};\n`);
    writeFileSync(join(dir, "version"), `${version}\n`);
    writeFileSync(join(dir, "holdfast.mjs"), head.join("") + AGENT);
    writeFileSync(join(dir, "node"), `#!/bin/sh\nexec '${process.execPath}' "$@"\n`, { mode: 0o755 });
    return dir;
  }

  /** Makes the same with the built program under that version. */
  makeReal(dir: string, version: string, how: Real = "real"): string {
    this.make(dir, version, "good");
    const [, , date] = version.split(".");
    const text = readFileSync(BUNDLE, "utf8").replaceAll(/"\d{8}-\d{6}\.[0-9a-z]{1,40}"/g, `"${date}00.abc"`);
    const proof = "holdfast-node-proof+jwt";
    writeFileSync(
      join(dir, "holdfast.mjs"),
      how === "real" ? text : text.replaceAll(proof, proof.replace("proof", "claim")),
    );
    return dir;
  }

  request(version: string, behaviour: Behaviour | Real, more: object = {}): void {
    this.#windowMs = WINDOWS[behaviour] ?? WINDOW_MS;
    const dir = join(this.root, `release-${version}`);
    const isReal = behaviour === "real" || behaviour === "proves badly";
    const from = isReal ? this.makeReal(dir, version, behaviour) : this.make(dir, version, behaviour);
    const request = { from, by: "operator", skipUnattended: true, ...more };
    writeFileSync(join(this.run, "upgrade-request.json"), JSON.stringify(request));
  }

  /** Starts the supervisor, as a boot does. */
  boot(): void {
    const supervising = { isOver: false, done: Promise.resolve() };
    supervising.done = this.#supervise(supervising);
    this.#supervising = supervising;
  }

  /** Kills everything at once, as a power cut does. */
  async halt(): Promise<void> {
    const supervising = this.#supervising;
    if (supervising === undefined) return;
    supervising.isOver = true;
    this.#agent?.kill("SIGKILL");
    await supervising.done;
    this.#supervising = undefined;
    for (const name of ["agent.sock", "admin.sock", "restart"]) rmSync(join(this.run, name), { force: true });
  }

  /** Ages the running start, as reported to the launcher by the manager's timer. */
  async live(): Promise<void> {
    await waitFor("it is started", () => this.#agent !== undefined);
    const id = `start-${this.#id}`;
    writeFileSync(join(this.run, "shown"), `InvocationID=${id}\nActiveState=active\n`);
    spawnSync(this.#launch, ["--lived", id], { env: this.#env() });
  }

  /** Kills the agent only. */
  crash(): void {
    this.#agent?.kill("SIGKILL");
  }

  async #supervise(me: { isOver: boolean }): Promise<void> {
    while (!me.isOver) {
      this.#id += 1;
      const env = { ...this.#env(), INVOCATION_ID: `start-${this.#id}` };
      spawnSync(this.#launch, ["--begin"], { env });
      rmSync(join(this.run, "agent.sock"), { force: true });
      const before = this.#noted();
      const agent = spawn(this.#launch, ["agent"], { env, stdio: "ignore" });
      this.#agent = agent;
      const ended = new Promise<number | null>((resolve) => agent.once("exit", resolve));
      const result = await this.#untilOver(agent, ended, before);
      if (me.isOver) break;
      spawnSync(this.#launch, ["--ended"], { env: { ...env, SERVICE_RESULT: result } });
      rmSync(join(this.run, "job"), { force: true });
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }

  /** Grows as soon as an agent runs. */
  #noted(): number {
    return statSync(join(this.run, "starts"), { throwIfNoEntry: false })?.size ?? 0;
  }

  /** Returns systemd's name for the exit. */
  async #untilOver(agent: ChildProcess, ended: Promise<number | null>, notedBefore: number): Promise<string> {
    const restart = join(this.run, "restart");
    let begun: number | undefined;
    let isReady = false;
    for (;;) {
      const tick = new Promise<"tick">((resolve) => setTimeout(() => resolve("tick"), 20));
      const came = await Promise.race([ended, tick]);
      isReady ||= existsSync(join(this.run, "agent.sock"));
      if (came !== "tick")
        return came === 0 ? (isReady ? "success" : "protocol") : came === null ? "signal" : "exit-code";
      if (existsSync(restart)) {
        rmSync(restart);
        writeFileSync(join(this.run, "job"), "");
        agent.kill("SIGTERM");
        const code = await ended;
        return code === 0 ? "success" : "signal";
      }
      if (this.#noted() > notedBefore) begun ??= performance.now();
      if (!isReady && begun !== undefined && performance.now() - begun > READY_MS) {
        agent.kill("SIGKILL");
        await ended;
        return "timeout";
      }
    }
  }

  #env(): Record<string, string> {
    const { lib, versions, run } = this;
    return {
      PATH: process.env["PATH"] ?? "",
      HOLDFAST_LIB: lib,
      HOLDFAST_VERSIONS: versions,
      HOLDFAST_RUN: run,
      HOLDFAST_STATE: this.state,
    };
  }

  /** Arguments of our runtime that run an upgrade here in a process of its own. */
  program(limits: Partial<Limits> = {}, { isTraced = false } = {}): readonly string[] {
    const file = join(this.root, `work-${isTraced}.json`);
    writeFileSync(file, JSON.stringify(this.#work(limits)));
    return [...FLAGS, bundled(DRIVER), file, ...(isTraced ? ["traced"] : [])];
  }

  /** Runs an upgrade to its end. */
  upgrade(limits: Partial<Limits> = {}): Promise<UpgradeResult> {
    return this.begin(limits).ended;
  }

  /** Begins an upgrade in this process; a process of its own takes longer to start than most upgrades to end. */
  begin(limits: Partial<Limits> = {}): Upgrade {
    const ending = new AbortController();
    let output = "";
    const print = (line: string): void => void (output += `${line}\n`);
    const ended = runUpgrade(this.#work(limits), print, ending.signal).then((code) => ({ code, output }));
    const stop = (): Promise<UpgradeResult> => {
      ending.abort(new Error("stopped by the test"));
      return ended;
    };
    onTestFinished(async () => void (await stop()));
    return { ended, said: () => output, stop };
  }

  /** Begins an upgrade in a process of its own, which can be killed. */
  beginApart(limits: Partial<Limits> = {}): ChildProcess {
    const child = spawn(process.execPath, this.program(limits), { stdio: "ignore" });
    onTestFinished(() => void child.kill("SIGKILL"));
    return child;
  }

  #work(limits: Partial<Limits>): UpgradeWork {
    const { run, lib, versions, state } = this;
    return {
      run,
      state,
      lib,
      versions,
      ownVersion: this.proven(),
      limits: { ...LIMITS, windowMs: this.#windowMs, ...limits },
    };
  }

  /** Returns the confirmed version, by the real launcher. */
  proven(): string {
    const script = readFileSync(this.#launch, "utf8").replace(/^run "\$@"$/m, 'pick; echo "$name"');
    const { stdout } = spawnSync("dash", ["-c", script, "launch", "--proven"], { encoding: "utf8", env: this.#env() });
    return stdout.trim();
  }

  standing(): UpgradeStanding | undefined {
    const path = join(this.versions, "upgrade.json");
    return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as UpgradeStanding) : undefined;
  }

  /** Returns the version of the answering agent. */
  async answers(): Promise<string | undefined> {
    const status = await readLocal(this.run, "/v1/status").catch(() => undefined);
    return status === undefined ? undefined : packageVersion(BuildInfo.parse(status));
  }

  /** Returns the number of polls of agents. */
  pollCount(): number {
    return statSync(join(this.run, "looks"), { throwIfNoEntry: false })?.size ?? 0;
  }

  /** Returns the number of starts of a version. */
  starts(version: string): number {
    const path = join(this.run, "starts");
    return existsSync(path)
      ? readFileSync(path, "utf8")
          .split("\n")
          .filter((line) => line === version).length
      : 0;
  }
}

/** Expects the exit status of an upgrade's program, and shows its output if it is another. */
export async function ends(status: number, ended: Promise<UpgradeResult>): Promise<void> {
  const { code, output } = await ended;
  expect(code, output).toBe(status);
}
