// A lab that can be used: its hosts, its programs, its controller's API.
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { callApi, originOf } from "./api.ts";
import {
  addressOf,
  CONTROLLER,
  CONTROLLER_PORT,
  INTERNET,
  nodesOf,
  siteOf,
  type Layout,
  type PublicHost,
  type Site,
} from "./layout.ts";
import { Network } from "./network.ts";
import { ownFiles } from "./own-files.ts";
import { endProgram, HOLDFAST, pidOf, placesOf, startAside, type ProgramName } from "./programs.ts";
import { LabError, runAside, until } from "./shell.ts";
import { newState, readState, writeState, type LabState } from "./state.ts";
import { changeLocal } from "../../test/support/control-plane/exchange.ts";
import { NodeIdentity } from "../../src/protocol/documents/claims.ts";
import { endUnitsBelow } from "../../test/support/machine/real-units.ts";

export class Lab {
  readonly dir: string;
  readonly network: Network;
  #state: LabState;

  constructor(dir: string, state: LabState) {
    this.dir = dir;
    this.network = new Network(dir);
    this.#state = state;
  }

  /**
   * The lab in a directory.
   * @throws {LabError} when there is none that is up.
   */
  static open(dir: string): Lab {
    const state = readState(dir);
    if (state?.isUp !== true) throw new LabError("no lab is up here; run 'scripts/lab up' first");
    return new Lab(dir, state);
  }

  /** Builds the network, starts every program and registers every node; what an earlier lab of the directory left goes first. */
  static async up(dir: string, layout: Layout, say: (line: string) => void = () => undefined): Promise<Lab> {
    await Lab.down(dir);
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    const lab = new Lab(dir, newState(layout));
    lab.change({});
    say("the network");
    lab.network.build(lab.state);
    say("the controller");
    await lab.startController();
    say("the nodes");
    const nodes = nodesOf(layout);
    await Promise.all(nodes.map((name) => lab.addNode(name)));
    await until("every node is online", async () => {
      const known = await lab.nodes();
      return nodes.every((wanted) => known.some(({ name, online }) => name === wanted && online));
    });
    lab.change({ isUp: true });
    return lab;
  }

  /** Ends every process, by SIGKILL alone if asked, and takes every network away; the files stay when they are asked for. */
  static async down(
    dir: string,
    { keepsFiles = false, isAbrupt = false }: { readonly keepsFiles?: boolean; readonly isAbrupt?: boolean } = {},
  ): Promise<void> {
    endUnitsBelow(dir);
    await new Network(dir).remove({ isAbrupt });
    if (keepsFiles) {
      const state = readState(dir);
      if (state !== undefined) writeState(dir, { ...state, isUp: false });
    } else {
      rmSync(dir, { recursive: true, force: true });
    }
  }

  get state(): LabState {
    return this.#state;
  }

  /** Changes what is known, on disk too. */
  change(state: Partial<LabState>): void {
    this.#state = { ...this.#state, ...state };
    writeState(this.dir, this.#state);
  }

  uidOf(node: string): string {
    const uid = this.state.uids[node];
    if (uid === undefined) throw new LabError(`no node is called ${node}`);
    return uid;
  }

  /** The public address of a host, or of the site whose edge it is. */
  addressOf(name: string): string {
    return addressOf(this.placeOf(name), this.state.moves[name]);
  }

  placeOf(name: string): PublicHost | Site {
    const found = this.state.layout.hosts.find((host) => host.name === name) ?? siteOf(this.state.layout, name);
    if (found === undefined) throw new LabError(`no host is called ${name}`);
    return found;
  }

  /** One API call; `{name}` in the path stands for the uid of that node. Gives the JSON, or the text that is none. */
  async call(method: string, path: string, body?: unknown): Promise<unknown> {
    const { status, text } = await this.ask(method, path, body);
    if (status >= 400) throw new LabError(`${method} ${path}: HTTP ${status} ${text}`);
    return text.startsWith("{") || text.startsWith("[") ? (JSON.parse(text) as unknown) : text;
  }

  /** The same, with whatever status it has. */
  ask(method: string, path: string, body?: unknown): Promise<{ status: number; text: string }> {
    const at = path.replaceAll(/\{([\w-]+)\}/g, (_, name: string) => this.uidOf(name));
    return callApi({ dir: this.dir, network: this.network, layout: this.state.layout }, method, at, body);
  }

  async nodes(): Promise<readonly { readonly name: string; readonly uid: string; readonly online: boolean }[]> {
    return (await this.call("GET", "/node")) as { name: string; uid: string; online: boolean }[];
  }

  /** Runs one command of a node and gives what it printed. */
  holdfast(node: string, ...args: readonly string[]): Promise<string> {
    const { run } = placesOf(this.dir, node);
    return runAside([...this.network.on(node), ...HOLDFAST, ...args, "--run", run]);
  }

  pidOf(host: string, program: ProgramName): number | undefined {
    return pidOf(this.dir, host, program);
  }

  async startController(): Promise<void> {
    const { own } = placesOf(this.dir, CONTROLLER);
    const listen = `${this.addressOf(CONTROLLER)}:${CONTROLLER_PORT}`;
    const args = ["controller", "--listen", listen, "--data", own, "--domain", "lab.example"];
    startAside(this.network.on(CONTROLLER), [...HOLDFAST, ...args], join(own, "controller.log"));
    await until(`the controller answers; see ${own}/controller.log`, async () => {
      const url = `${originOf(this.state.layout)}/healthz`;
      return runAside([...this.network.on(INTERNET), "curl", "-skf", "--max-time", "5", url]);
    });
  }

  /** Starts the agent of a node; `within` is put before its command line. */
  async startAgent(node: string, within: readonly string[] = []): Promise<void> {
    const { own, state, run } = placesOf(this.dir, node);
    const args = ["agent", "--state", state, "--run", run];
    const socket = join(run, "admin.sock");
    // One that was killed left its own.
    rmSync(socket, { force: true });
    const where = [...this.network.on(node), ...ownFiles(own), ...within];
    startAside(where, [...HOLDFAST, ...args], join(own, "agent.log"));
    await until(`the agent of ${node} answers; see ${own}/agent.log`, () => existsSync(socket));
  }

  /** Ends the agent of a node; its overlay goes on. */
  endAgent(node: string, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    return endProgram(this.dir, node, "agent", signal);
  }

  /** Kills a program. */
  async kill(program: ProgramName, host: string): Promise<void> {
    if (this.pidOf(host, program) === undefined) throw new LabError(`no ${program} runs on ${host}`);
    await endProgram(this.dir, host, program, "SIGKILL");
  }

  /** Ends a program and starts it again; an overlay is started by its agent. */
  async restart(program: ProgramName, host: string, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const before = this.pidOf(host, program);
    if (before === undefined) throw new LabError(`no ${program} runs on ${host}`);
    await endProgram(this.dir, host, program, program === "overlay" ? "SIGKILL" : signal);
    if (program === "controller") await this.startController();
    else if (program === "agent") await this.startAgent(host);
    await until(`another ${program} runs on ${host}`, () => (this.pidOf(host, program) ?? before) !== before);
  }

  /** Replaces the overlay of a node as an upgrade does: the successor takes over, and the one before serves what it has to its end. */
  async upgrade(node: string): Promise<void> {
    const before = this.pidOf(node, "overlay");
    if (before === undefined) throw new LabError(`no overlay runs on ${node}`);
    const { own, state, run } = placesOf(this.dir, node);
    const args = ["overlay", "--state", join(state, "overlay"), "--run", run, "--successor"];
    const log = join(own, "successor.log");
    startAside(this.network.on(node), [...HOLDFAST, ...args], log);
    await until(
      `another overlay serves on ${node}; see ${log}`,
      () => (this.pidOf(node, "overlay") ?? before) !== before,
    );
  }

  /** Registers a node under its name and knows it by its uid from then on. */
  async addNode(name: string): Promise<void> {
    const { own } = placesOf(this.dir, name);
    mkdirSync(own, { recursive: true, mode: 0o700 });
    const license = String(await this.call("GET", `/node/license?name=${name}&type=Node`));
    await this.startAgent(name);
    const { status, body } = await changeLocal(placesOf(this.dir, name).run, "/v1/register", { license });
    if (status !== 200) throw new LabError(`cannot register ${name}: ${status} ${JSON.stringify(body)}`);
    const { uid } = NodeIdentity.parse(body);
    this.change({ uids: { ...this.state.uids, [name]: uid } });
  }
}
