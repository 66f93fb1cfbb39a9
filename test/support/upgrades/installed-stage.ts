import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DoctorReport } from "../../../src/cli/doctor/result.ts";
import { Status } from "../../../src/protocol/local/answers.ts";
import { ConnectorsReport } from "../../../src/protocol/local/overlay.ts";
import { UpgradeStanding } from "../../../src/protocol/documents/release.ts";
import { ApplianceMachine, MACHINE_ADDRESS, OUTSIDE_ADDRESS, type Ran } from "./appliance-machine.ts";
import { BUNDLE, FLAGS } from "../machine/programs.ts";
import { ARCHITECTURE, type Release } from "./releases.ts";
import { startEcho, startFlow, type SteadyFlow } from "../overlay/steady-flow.ts";
import { waitFor } from "../wait-for.ts";

const CONTROLLER_PORT = 8480;
const ECHO_PORT = 7000;
const CONNECTOR_PORT = 8488;
const NETWORK = {
  interfaces: [{ nic: "eth0", ip: `${MACHINE_ADDRESS}/24`, gateway: OUTSIDE_ADDRESS, addIps: ["203.0.113.20/24"] }],
  routes: [{ dest: "10.30.0.0/16", dev: "eth0", via: OUTSIDE_ADDRESS }],
  nats: [{ source: "10.9.0.0/24", masquerade: true }],
};

/** A machine, and at the other end of its link a controller and an echo server; removed together. */
export class InstalledStage {
  readonly machine: ApplianceMachine;
  /** Directory of the test's own files, removed with the stage. */
  readonly dir: string;
  readonly #data: string;
  #controller: ChildProcess | undefined;
  #uid: string | undefined;

  private constructor(machine: ApplianceMachine, dir: string) {
    this.machine = machine;
    this.dir = dir;
    this.#data = join(dir, "controller");
  }

  /** Makes one with an empty machine, or as one was kept in a directory. */
  static async make(kept?: string): Promise<InstalledStage> {
    const machine = await ApplianceMachine.make(kept === undefined ? undefined : join(kept, "disk"));
    const stage = new InstalledStage(machine, mkdtempSync(join(tmpdir(), "hf-installed-")));
    if (kept !== undefined) {
      cpSync(join(kept, "controller"), stage.#data, { recursive: true, preserveTimestamps: true });
      stage.#uid = readFileSync(join(kept, "uid"), "utf8");
    }
    await Promise.all([stage.#startController(), startEcho(machine.outside, ECHO_PORT), machine.boot()]);
    if (kept !== undefined) {
      await stage.untilOnline();
      await waitFor("the connector listens", () => stage.isListening());
      await stage.#untilNetwork();
    }
    return stage;
  }

  /** Stops everything in order, and keeps the machine's disk, the controller's data and the node's id in a directory. */
  async keep(dir: string): Promise<void> {
    await this.machine.keepDisk(join(dir, "disk"));
    if (this.#controller !== undefined) {
      const ended = once(this.#controller, "exit");
      this.#controller.kill();
      await ended;
    }
    cpSync(this.#data, join(dir, "controller"), { recursive: true, preserveTimestamps: true });
    writeFileSync(join(dir, "uid"), this.uid);
  }

  /** Directory of the releases that the controller offers. */
  get releasesDir(): string {
    return join(this.dir, "releases");
  }

  get uid(): string {
    if (this.#uid === undefined) throw new Error("nobody is registered");
    return this.#uid;
  }

  /** Sends one call of the API with the admin key; fails on a status of 400 and above. */
  async call(method: string, path: string, body?: unknown): Promise<unknown> {
    const key = readFileSync(join(this.#data, "admin.key"), "utf8").trim();
    const url = `https://${OUTSIDE_ADDRESS}:${CONTROLLER_PORT}${path}`;
    const sent = body === undefined ? "" : "-H 'content-type: application/json' --data-binary @-";
    const line = `curl -skg -w '\\n%{http_code}' -X ${method} -H 'Authorization: ${key}' ${sent} '${url}'`;
    const { stdout, stderr } = await this.machine.runOutside(line, { input: JSON.stringify(body) });
    const [, text = "", status = ""] = /^([\s\S]*)\n(\d+)$/.exec(stdout) ?? [];
    if (status === "" || Number(status) >= 400) throw new Error(`${method} ${path}: ${status} ${text}${stderr}`);
    return text.startsWith("{") || text.startsWith("[") || text.startsWith('"') ? (JSON.parse(text) as unknown) : text;
  }

  /** Writes a license for a node of that name to the machine, and returns its path. */
  async bringLicense(name: string): Promise<string> {
    const license = String(await this.call("GET", `/node/license?name=${name}&type=Node`));
    await this.machine.sh(`umask 077; cat > /root/license`, { input: license });
    return "/root/license";
  }

  /** Installs a release's package with dpkg, without other sources. */
  async install({ dir, version }: Release): Promise<void> {
    await this.machine.copyIn(join(dir, `holdfast_${version}_${ARCHITECTURE}.deb`), "/root/holdfast.deb");
    await this.machine.sh("dpkg --install /root/holdfast.deb && rm /root/holdfast.deb");
  }

  /** Sets the machine up from a file, as an image does at its first boot, and gives the node a connector to the echo server. */
  async setUp(settings: Readonly<Record<string, unknown>>): Promise<void> {
    const license = (await this.machine.sh(`cat ${await this.bringLicense("installed")}`)).trim();
    await this.machine.sh("umask 077; cat > /root/setup.json", { input: JSON.stringify({ license, settings }) });
    await this.machine.sh("holdfast setup --file /root/setup.json --once --wait --timeout 60");
    const nodes = (await this.call("GET", "/node")) as readonly { readonly name: string; readonly uid: string }[];
    this.#uid = nodes.find(({ name }) => name === "installed")?.uid;
    const config = `/v2/node/${this.uid}/config`;
    const service = { name: "echo", protocol: "tcp", host: OUTSIDE_ADDRESS, port: ECHO_PORT };
    await this.call("POST", `${config}/services`, service);
    const connector = {
      node: "local",
      service: "echo",
      protocol: "tcp",
      localIp: MACHINE_ADDRESS,
      port: CONNECTOR_PORT,
    };
    await this.call("POST", `${config}/connectors`, connector);
    await waitFor("the connector listens", () => this.isListening());
  }

  /** Adds an address, a route and a translation to the node's network, and further settings to its interface. */
  async setNetwork(more: Readonly<Record<string, unknown>> = {}): Promise<void> {
    const before = (await this.status()).documents.node?.version ?? 0;
    await this.call("PUT", `/node/${this.uid}/config/network?confirm=30`, {
      ...NETWORK,
      interfaces: NETWORK.interfaces.map((one) => ({ ...one, ...more })),
    });
    await this.#untilNetwork(before);
  }

  /** Applies another route on trial, until confirmed or reverted. */
  async tryNetwork(): Promise<void> {
    const routes = [...NETWORK.routes, { dest: "10.31.0.0/16", dev: "eth0", via: OUTSIDE_ADDRESS }];
    const input = JSON.stringify({ ...NETWORK, routes });
    await this.machine.sh("holdfast network try - --minutes 10", { input });
    await waitFor("it is on trial", async () => (await this.status()).pendingChange !== undefined);
  }

  /** Returns the node's shadow at the control plane. */
  async reported(): Promise<Readonly<Record<string, unknown>>> {
    const node = (await this.call("GET", `/node/${this.uid}`)) as { shadow?: { reported?: Record<string, unknown> } };
    return node.shadow?.reported ?? {};
  }

  /** Returns the state of the last upgrade stored on the machine. */
  async standing(): Promise<UpgradeStanding | undefined> {
    const { code, stdout } = await this.machine.run("cat /var/lib/holdfast-versions/upgrade.json");
    return code === 0 ? UpgradeStanding.parse(JSON.parse(stdout)) : undefined;
  }

  /** Requests an upgrade through the control plane, and waits for its end. */
  async upgrade(): Promise<UpgradeStanding> {
    return this.untilUpgraded(await this.askForUpgrade());
  }

  /** Requests an upgrade through the control plane; returns the start time of the last one. */
  async askForUpgrade(): Promise<number> {
    const before = (await this.standing())?.begunAt ?? 0;
    await this.call("POST", `/node/${this.uid}/trigger/node-upgrade?wait=1`, { skipUnattended: true });
    return before;
  }

  /** Waits until an upgrade that started after another has reached one of these steps. */
  async untilUpgrading(before: number, ...steps: readonly UpgradeStanding["step"][]): Promise<void> {
    await waitFor(`the upgrade is ${steps.join(" or ")}`, async () => {
      const standing = await this.standing();
      if (standing === undefined || standing.begunAt <= before) return false;
      if (standing.state !== "IN_PROGRESS") throw new Error(`it is over: ${JSON.stringify(standing)}`);
      return steps.includes(standing.step);
    });
  }

  /** Waits for the end of an upgrade that started after another. */
  async untilUpgraded(before: number): Promise<UpgradeStanding> {
    let seen: UpgradeStanding | undefined;
    return waitFor(
      "the upgrade has ended",
      async () => {
        seen = await this.standing();
        return seen !== undefined && seen.begunAt > before && seen.state !== "IN_PROGRESS" && seen;
      },
      180_000,
    ).catch(async (error: unknown) => {
      const output = await this.machine.run("journalctl --no-pager --boot --unit='holdfast*' | tail -n 60");
      throw new Error(`no end of the upgrade: ${JSON.stringify(seen)}\n${output.stdout}`, { cause: error });
    });
  }

  /** Opens a flow from the other end of the link through the node's connector and back. */
  flow(): Promise<SteadyFlow> {
    return startFlow(this.machine.outside, MACHINE_ADDRESS, CONNECTOR_PORT);
  }

  /** Runs a verb on the machine as root. */
  holdfast(...args: readonly string[]): Promise<Ran> {
    return this.machine.run(`holdfast ${args.map((arg) => `'${arg}'`).join(" ")}`);
  }

  /** Returns the agent's status, requested directly: starting a verb takes ten times as long. */
  async status(): Promise<Status> {
    return Status.parse(await this.#answer("status"));
  }

  /** Reports whether the agent knows that its connector listens. */
  async isListening(): Promise<boolean> {
    return ConnectorsReport.parse(await this.#answer("connectors")).connectors.some(
      ({ state }) => state === "listening",
    );
  }

  async doctor(): Promise<DoctorReport["checks"]> {
    return DoctorReport.parse(JSON.parse((await this.holdfast("doctor", "--json")).stdout)).checks;
  }

  /** Makes a bundle, and returns its contents, with the names of its files. */
  bundle(): Promise<string> {
    const unpack = "tar -xf /tmp/bundle/*.tar.gz -C /tmp/bundle";
    return this.machine.sh(
      `mkdir /tmp/bundle && cd /tmp/bundle && holdfast bundle >&2 && ${unpack} && grep -r '' . ; cd / && rm -r /tmp/bundle`,
    );
  }

  /** Requests a bundle through the control plane, and returns its contents, with the names of its files. */
  async bundleFromAfar(): Promise<string> {
    const key = readFileSync(join(this.#data, "admin.key"), "utf8").trim();
    const url = `https://${OUTSIDE_ADDRESS}:${CONTROLLER_PORT}/node/${this.uid}/bundle`;
    const dir = mkdtempSync(join(this.dir, "bundle-"));
    const line = `cd ${dir} && curl -skfg -X POST -H 'Authorization: ${key}' '${url}' | tar -xzf - && grep -r '' .`;
    const { code, stdout, stderr } = await this.machine.runOutside(line);
    if (code !== 0) throw new Error(`no bundle came: ${stderr}`);
    return stdout;
  }

  /** Waits until the agent has a session. */
  async untilOnline(): Promise<Status> {
    return waitFor("the node is online", async () => {
      const status = await this.status();
      return status.session.state === "online" && status;
    }).catch(async (error: unknown) => {
      const output = await this.machine.run("journalctl --no-pager --boot --unit='holdfast*' | tail -n 60");
      throw new Error(`the node is not online:\n${output.stdout}`, { cause: error });
    });
  }

  /** Waits until the agent is a new process with a session. */
  async untilRestarted(before: number): Promise<void> {
    const isAnother = async (): Promise<boolean> => ![0, before].includes(await this.pidOf("holdfast-agent.service"));
    await waitFor("the agent has been started again", isAnother);
    await this.untilOnline();
  }

  /** Returns the process id of a unit. */
  async pidOf(unit: string): Promise<number> {
    return Number(await this.machine.property(unit, "MainPID"));
  }

  /** Returns the process id of the serving overlay, of any unit. */
  async overlayPid(): Promise<number> {
    return Number(await this.machine.sh("cat /run/holdfast-overlay/overlay.pid"));
  }

  async remove(): Promise<void> {
    await this.machine.remove();
    rmSync(this.dir, { recursive: true, force: true });
  }

  /** Returns what the agent answers to a request. */
  async #answer(path: string): Promise<unknown> {
    const requested = `curl -sf --unix-socket /run/holdfast/agent.sock http://agent/v1/${path}`;
    return JSON.parse((await this.machine.run(requested)).stdout);
  }

  /** Waits until a later version of the node's document is applied to the network. */
  async #untilNetwork(before = 0): Promise<void> {
    await waitFor("the network is applied", async () => {
      const { documents, sections } = await this.status();
      return (documents.node?.version ?? 0) > before && sections["network"]?.state === "converged";
    });
  }

  async #startController(): Promise<void> {
    const log = join(this.dir, "controller.log");
    const out = openSync(log, "a");
    const args = ["controller", "--listen", `${OUTSIDE_ADDRESS}:${CONTROLLER_PORT}`, "--data", this.#data];
    args.push("--releases", this.releasesDir);
    mkdirSync(this.releasesDir);
    const [file = "", ...rest] = [...this.machine.outside, process.execPath, ...FLAGS, BUNDLE, ...args];
    const child = spawn(file, rest, { stdio: ["ignore", out, out] });
    this.#controller = child;
    await waitFor("the controller answers", async () => {
      if (child.exitCode !== null) return true;
      const answer = await this.machine.runOutside(`curl -skf https://${OUTSIDE_ADDRESS}:${CONTROLLER_PORT}/healthz`);
      return answer.code === 0;
    });
    if (child.exitCode !== null) throw new Error(`the controller ended: ${readFileSync(log, "utf8")}`);
  }
}
