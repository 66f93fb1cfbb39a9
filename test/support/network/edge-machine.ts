import { spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CONTROLLER_PORT, PRIVATE_NET, privateAddressOf, siteOf } from "../../../scripts/labs/layout.ts";
import type { Lab } from "../../../scripts/labs/lab.ts";
import { HOLDFAST, placesOf, startAside } from "../../../scripts/labs/programs.ts";
import { ownFiles } from "../../../scripts/labs/own-files.ts";
import { run } from "../../../scripts/labs/shell.ts";
import { askAgent } from "../../../scripts/labs/ask-agent.ts";
import { Status } from "../../../src/protocol/local/answers.ts";
import { bundled } from "../bundled.ts";
import { differences, machineState, pathState, type MachineState, type PathState } from "./machine-state.ts";
import { endUnitsBelow } from "../machine/real-units.ts";
import type { Finished } from "../run-holdfast.ts";
import { runVerb } from "../run-verb.ts";
import { waitFor } from "../wait-for.ts";

/** The shortest confirmation window of a change, in seconds. */
export const WINDOW_SECONDS = 30;
/** Address of the host on the LAN, as configured by the distribution. */
export const LAN_HOST = "10.9.0.2";

const PORTAL = join(import.meta.dirname, "portal-program.ts");
const BOOT_ID = "/proc/sys/kernel/random/boot_id";

/**
 * An edge of a lab as a machine: `eth0` is its WAN, configured by a distribution independent of us, and `eth1` a LAN with one other host,
 * down at first. Supports power cuts.
 */
export class EdgeMachine {
  readonly lab: Lab;
  readonly name: string;
  readonly #mac: string;
  /** Whether the distribution leaves the WAN to us. */
  #isBare = false;
  /** A machine gets another boot id at every start. */
  readonly #bootIdFile: string;

  constructor(lab: Lab, name: string) {
    this.lab = lab;
    this.name = name;
    this.#mac = this.sh("cat /sys/class/net/eth0/address").trim();
    this.#bootIdFile = join(placesOf(lab.dir, name).own, "boot-id");
    copyFileSync(BOOT_ID, this.#bootIdFile);
    run(["ip", "netns", "add", this.#lanSpace]);
    this.plugLan();
  }

  /** A command prefix that runs on this machine. */
  get within(): readonly string[] {
    return this.lab.network.on(this.name);
  }

  /** The same for the host on its LAN. */
  get lan(): readonly string[] {
    return ["ip", "netns", "exec", this.#lanSpace];
  }

  get uid(): string {
    return this.lab.uidOf(this.name);
  }

  /** The router of the distribution's default route. */
  get router(): readonly string[] {
    return this.lab.network.on(this.#site.name);
  }

  state(): MachineState {
    return machineState(this.within);
  }

  /** Reads links, addresses, routes and rules alone, for polls. */
  paths(): PathState {
    return pathState(this.within);
  }

  /** Returns the differences from a former state; all of it is read only if links, addresses, routes and rules are the same. */
  differsFrom(before: MachineState): readonly string[] {
    const found = differences(before, this.paths());
    return found.length > 0 ? found : differences(before, this.state());
  }

  /** Waits until the network equals a former state, except what `isAside` accepts; fails with the differences. */
  async untilAs(
    before: MachineState,
    limitMs: number,
    isAside: (line: string) => boolean = () => false,
  ): Promise<void> {
    let left: readonly string[] = [];
    const lasting = (after: PathState): readonly string[] =>
      differences(before, after).filter((line) => !isAside(line));
    const isSame = (): boolean => {
      left = lasting(this.paths());
      if (left.length === 0) left = lasting(this.state());
      return left.length === 0;
    };
    await waitFor(`the network of ${this.name} is as it was`, isSame, limitMs).catch(() => {
      throw new Error(`${this.name} differs:\n${left.join("\n")}\n${this.log().slice(-4000)}`);
    });
  }

  /** Runs a shell line on the machine as root. */
  sh(line: string, where = this.within): string {
    return run([...where, "sh", "-c", line]);
  }

  /** Sets a section through the API; with a short confirmation window by default. */
  put(section: unknown, query = `?confirm=${WINDOW_SECONDS}`): Promise<{ status: number; text: string }> {
    return this.lab.ask("PUT", `/node/${this.uid}/config/network${query}`, section);
  }

  /** Runs a verb of the command line against its agent. */
  verb(...args: readonly string[]): Promise<Finished> {
    return runVerb([...args, "--run", placesOf(this.lab.dir, this.name).run]);
  }

  /** Runs `holdfast guard restore` on it, as its boot does. */
  restore(): Promise<Finished> {
    const { state, run } = placesOf(this.lab.dir, this.name);
    const command = [...HOLDFAST, "guard", "restore", "--state", state, "--run", run];
    const [file, ...rest] = [...this.within, ...this.#ownFiles, ...command];
    const child = spawn(file ?? "", rest, { stdio: ["ignore", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    return new Promise((resolve) => child.once("close", (code) => resolve({ code, stdout, stderr })));
  }

  /** Reports whether a TCP connection to the control plane succeeds. */
  reachesController(seconds = 2): boolean {
    const address = this.lab.addressOf("controller");
    // Node's pipes are sockets, for which bash assumes a remote shell and reads its user's start file.
    const command = [
      "timeout",
      String(seconds),
      "bash",
      "--norc",
      "-c",
      `exec 3<>/dev/tcp/${address}/${CONTROLLER_PORT}`,
    ];
    const [file, ...args] = [...this.within, ...command];
    return spawnSync(file ?? "", args).status === 0;
  }

  /** Returns the agent's status. */
  async status(): Promise<Status> {
    return Status.parse(await askAgent(this.lab, this.name, "/v1/status"));
  }

  /** Sets a section through the API, and waits until it is applied and confirmed. */
  async apply(section: unknown, limitMs = 120_000): Promise<Status> {
    const { documents } = await this.status();
    const { status, text } = await this.put(section);
    if (status !== 200) throw new Error(`HTTP ${status}: ${text}`);
    return this.untilSettled((documents.node?.version ?? 0) + 1, limitMs);
  }

  /** Applies a section, and removes the distribution's settings of the WAN: from then on, over reboots, all of it is ours. */
  async own(section: unknown): Promise<void> {
    await this.apply(section);
    this.#isBare = true;
    this.sh("ip address flush dev eth0");
    await waitFor(`${this.name} has set its WAN`, () => {
      const { addresses, routes } = this.paths();
      const isOurs = addresses.some((line) => line.includes("label=eth0:hf"));
      return isOurs && routes.some((line) => line.includes("dst=default") && line.includes("protocol=218"));
    });
    await this.untilOnline();
    await waitFor(`${this.name} reaches its control plane`, () => this.reachesController());
  }

  /** Waits until the node has a verdict on its document, of at least this version. */
  async untilSettled(least = 1, limitMs = 120_000): Promise<Status> {
    let seen = "nothing";
    const look = async (): Promise<Status | undefined> => {
      const status = await this.status();
      const { network } = status.sections;
      const version = status.documents.node?.version ?? 0;
      seen = JSON.stringify({ session: status.session.state, documents: status.documents, network });
      return version >= least && network?.version === version && network.state === "converged" ? status : undefined;
    };
    return waitFor(`${this.name} is settled`, look, limitMs).catch((error: unknown) => {
      throw new Error(`${this.name} is not settled: ${seen}\n${this.log().slice(-3000)}`, { cause: error });
    });
  }

  /** Waits until there is a session. */
  async untilOnline(): Promise<void> {
    const isOnline = async (): Promise<boolean> => (await this.status()).session.state === "online";
    await waitFor(`${this.name} is online`, isOnline);
  }

  /** Returns the control plane's record of the node. */
  async record(): Promise<Readonly<Record<string, unknown>>> {
    return (await this.lab.call("GET", `/node/${this.uid}`)) as Readonly<Record<string, unknown>>;
  }

  /** Returns the node's shadow at the control plane. */
  async reported(): Promise<Readonly<Record<string, unknown>>> {
    const { shadow } = (await this.record()) as { shadow?: { reported?: Record<string, unknown> } };
    return shadow?.reported ?? {};
  }

  /** Returns its events at the control plane, newest first. */
  async events(): Promise<readonly Readonly<Record<string, unknown>>[]> {
    const found = await this.lab.call("GET", `/v2/event/${this.uid}?limit=100&sort=timestamp:desc`);
    return found as readonly Readonly<Record<string, unknown>>[];
  }

  /** Starts the agent; `within` is put before its command line, after its own files. */
  start(within: readonly string[] = []): Promise<void> {
    return this.lab.startAgent(this.name, [...this.#ownFiles, ...within]);
  }

  /** Starts a captive portal on a machine of the site; it ends with the lab. */
  async startPortal(host: string, port: number): Promise<void> {
    const log = join(this.lab.dir, `${host}-portal.log`);
    startAside(this.lab.network.on(host), [process.execPath, bundled(PORTAL), String(port)], log);
    await waitFor(`the portal on ${host}`, () => readFileSync(log, "utf8").includes("ready"));
  }

  /** Returns the agent's log. */
  log(): string {
    return run(["cat", `${placesOf(this.lab.dir, this.name).own}/agent.log`]);
  }

  /** Kills every process of the machine at once, except programs with these names; the kernel keeps its state. */
  async endEverything(living: readonly string[] = []): Promise<void> {
    endUnitsBelow(placesOf(this.lab.dir, this.name).own);
    const pids = (): readonly number[] =>
      this.lab.network.pids(this.name).filter((pid) => !living.includes(nameOf(pid)));
    await waitFor("nothing runs on the machine", () => {
      for (const pid of pids()) if (isThere(pid)) process.kill(pid, "SIGKILL");
      return pids().length === 0;
    });
  }

  /** Cuts the power: every process is killed, and the state of the kernel is lost. */
  async cutPower(): Promise<void> {
    await this.endEverything();
    run(["ip", "-n", this.#space, "link", "del", "eth0"]);
    run(["ip", "-n", this.#space, "link", "del", "eth1"]);
    run(["ip", "netns", "del", this.#space]);
    rmSync(placesOf(this.lab.dir, this.name).run, { recursive: true, force: true });
  }

  /** Restores the power: the distribution configures the network as at every start, and none of our programs runs. */
  boot({ isSameStart = false } = {}): void {
    if (!isSameStart) writeFileSync(this.#bootIdFile, `${randomUUID()}\n`);
    run(["ip", "netns", "add", this.#space]);
    // A new namespace copies the settings of the test's own, which a container engine changes.
    run(["ip", "netns", "exec", this.#space, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"]);
    const site = this.#site;
    const batch = (space: string, lines: readonly string[]): string =>
      run(["ip", "-n", space, "-batch", "-"], `${lines.join("\n")}\n`);
    const siteSpace = this.router.at(-1) ?? "";
    batch(this.#space, [
      "link set lo up",
      `link add name eth0 address ${this.#mac} type veth peer name ${this.name} netns ${siteSpace}`,
      ...(this.#isBare ? [] : [`address add ${privateAddressOf(site, this.name)}/24 dev eth0`]),
      "link set dev eth0 up",
    ]);
    batch(siteSpace, [`link set dev ${this.name} master lan up`]);
    if (!this.#isBare) batch(this.#space, [`route add default via ${PRIVATE_NET}.1`]);
    this.plugLan();
  }

  /** Plugs a new LAN card in. */
  plugLan(): void {
    const lines = [
      `link add name eth1 netns ${this.#space} address 02:00:00:00:09:01 type veth peer name eth0 netns ${this.#lanSpace}`,
    ];
    run(["ip", "-batch", "-"], `${lines.join("\n")}\n`);
    const lan = [
      "link set lo up",
      `address add ${LAN_HOST}/24 dev eth0`,
      "link set dev eth0 up",
      "route add default via 10.9.0.1",
    ];
    run(["ip", "-n", this.#lanSpace, "-batch", "-"], `${lan.join("\n")}\n`);
  }

  /** Files that each of our processes on it sees as its own. */
  get #ownFiles(): readonly string[] {
    const mount = `mount --bind ${this.#bootIdFile} ${BOOT_ID} && exec "$0" "$@"`;
    return [...ownFiles(placesOf(this.lab.dir, this.name).own), "sh", "-c", mount];
  }

  get #space(): string {
    return this.within.at(-1) ?? "";
  }

  get #lanSpace(): string {
    return `${this.#space}-lan`;
  }

  get #site() {
    const site = siteOf(this.lab.state.layout, this.name);
    if (site === undefined) throw new Error(`${this.name} is at no site`);
    return site;
  }
}

/** Returns the name of a process's program; empty after its exit. */
function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch {
    return "";
  }
}

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
