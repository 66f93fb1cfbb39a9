import { join } from "node:path";
import { startEngine, type TestEngine } from "./docker-engine.ts";
import { makeImage } from "./images.ts";
import { plugNeighbour, type Neighbour } from "../network/network-neighbour.ts";
import { privateNetwork } from "../network/private-stage.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
} from "../machine/programs.ts";
import { runVerb } from "../run-verb.ts";
import { tempDir } from "../temp-dir.ts";
import { waitFor } from "../wait-for.ts";

/** A node on a machine of its own, with a real engine and a neighbour on `wan0`; needs root. */
export interface ContainerStage extends Neighbour {
  readonly engine: TestEngine;
  readonly controller: ControllerProgram;
  readonly uid: string;
  readonly agent: AgentProgram;
  /** Starts another agent on the same state, as after an upgrade. */
  restartAgent(signal: NodeJS.Signals): Promise<void>;
  /** Adds a container that answers its name on TCP 80; returns its id. */
  add(name: string, more?: Record<string, unknown>): Promise<string>;
  /** Changes parts of its extended config. */
  configure(id: string, parts: Record<string, unknown>): Promise<void>;
  remove(id: string): Promise<void>;
  /** Returns the answer to a request from there; empty without one in time, a second by default. */
  readonly get: (side: "here" | "there", address: string, seconds?: number) => string;
  /** Returns the output of a command in the container of a definition, with any exit status. */
  run(id: string, command: readonly string[]): Promise<string>;
  setNetwork(section: Record<string, unknown>): Promise<void>;
  /** Makes UDP 5300 of the container echo, until the container or the test ends. */
  echoUdp(id: string): Promise<void>;
  /** Returns the answer over UDP; empty without one. */
  sendUdp(address: string, port: number): string;
  whyText(): Promise<string>;
  engineIdOf(id: string): Promise<string | undefined>;
  /** Returns the process id of its container; 0 if that does not run. */
  pidOf(id: string): Promise<number | undefined>;
  addressOf(id: string): Promise<string | undefined>;
}

const SERVE = "mkdir -p /www; echo $NAME > /www/index.html; exec httpd -f -p 80 -h /www";
const ECHO =
  'const s = require("node:dgram").createSocket("udp4"); s.on("message", (m, r) => s.send(m, r.port, r.address)).bind(5300)';

/** Starts the stage; `onFinished` registers what ends it. Forwarded packets are dropped by default, as Docker configures it. */
export async function containerStage(onFinished: (end: () => unknown) => void): Promise<ContainerStage> {
  const dir = tempDir(onFinished);
  const port = await freePort();
  const controller = await startController(dir, port, [], { onFinished });
  const network = await privateNetwork(dir, port, "root", onFinished);
  const neighbour = await plugNeighbour(network, onFinished);
  const engine = await startEngine({ network: { ofPid: Number(network.within[2]) } });
  onFinished(() => engine.stop());
  neighbour.here(`iptables -P FORWARD DROP; mount -t tmpfs tmpfs /run && ln -s ${engine.socketPath} /run/docker.sock`);
  await makeImage(engine, { tag: "box:1" });
  let agent = await startAgent(join(dir, "node"), { within: network.within, onFinished });
  const uid = await registerNode(controller, agent, "edge");
  const base = `/v2/node/${uid}/exec/container`;

  async function call(method: string, path: string, body?: unknown): Promise<void> {
    const answer = await controller.call(method, path, body);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  }

  async function inspect(id: string) {
    const { body } = await engine.call("GET", `/containers/holdfast-${id}/json`);
    return body as {
      readonly Id?: string;
      readonly State?: { readonly Running: boolean; readonly Pid: number };
      readonly NetworkSettings?: { readonly Networks: Record<string, { readonly IPAddress: string }> };
    };
  }

  const names = new Map<string, string>();
  const partsOf = (name: string) => ({
    variables: [{ name: "NAME", value: name }],
    limits: { cpuMax: 50, memMax: 64 },
  });
  return {
    ...neighbour,
    engine,
    controller,
    uid,
    get agent() {
      return agent;
    },
    async restartAgent(signal) {
      await agent.end(signal);
      agent = await startAgent(join(dir, "node"), { within: network.within, onFinished });
    },
    async add(name, more = {}) {
      const id = `00000000-0000-4000-8000-00000000000${names.size + 1}`;
      names.set(id, name);
      await call("POST", base, {
        id,
        name,
        execType: "service",
        image: { repository: "box", tag: "1" },
        command: `sh -c '${SERVE}'`,
        stopTime: 0,
        ...partsOf(name),
        ...more,
      });
      await waitFor(`${name} runs`, async () => (await inspect(id)).State?.Running === true).catch((error: unknown) => {
        throw new Error(`${name} does not run:\n${agent.log().slice(-4000)}`, { cause: error });
      });
      return id;
    },
    async configure(id, parts) {
      await call("PUT", `${base}/${id}/config`, { ...partsOf(names.get(id) ?? ""), ...parts });
    },
    remove: (id) => call("DELETE", `${base}/${id}`),
    get(side, address, seconds = 1) {
      const [host = "", to = "80"] = address.split(":");
      const ask = `exec 3<>/dev/tcp/${host}/${to} && printf "GET / HTTP/1.0\\r\\n\\r\\n" >&3 && tail -n 1 <&3`;
      return neighbour[side](`timeout ${seconds} bash -c '${ask}' 2>/dev/null || true`).trim();
    },
    async run(id, command) {
      const { Id } = await inspect(id);
      const body = { Cmd: command, AttachStdout: true, AttachStderr: true };
      const made = (await engine.call("POST", `/containers/${Id}/exec`, body)).body as { readonly Id?: string };
      return String((await engine.call("POST", `/exec/${made.Id}/start`, { Detach: false })).body);
    },
    setNetwork: (section) => call("PUT", `/node/${uid}/config/network`, section),
    async echoUdp(id) {
      const { State } = await inspect(id);
      neighbour.start("here", "nsenter", "-t", String(State?.Pid ?? 0), "-n", process.execPath, "-e", ECHO);
    },
    sendUdp(address, to) {
      const line = `exec 3<>/dev/udp/${address}/${to}; echo hello >&3; timeout 0.5 head -n 1 <&3 || true`;
      return neighbour.there(`(${line}) 2>/dev/null`).trim();
    },
    whyText: async () => (await runVerb(["why", "--run", agent.runDir])).stdout,
    engineIdOf: async (id) => (await inspect(id)).Id,
    pidOf: async (id) => (await inspect(id)).State?.Pid,
    addressOf: async (id) => Object.values((await inspect(id)).NetworkSettings?.Networks ?? {})[0]?.IPAddress,
  };
}
