import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { PassThrough } from "node:stream";
import { afterAll, beforeAll, expect, onTestFinished } from "vitest";
import { askAgent } from "../../../scripts/labs/ask-agent.ts";
import { heal } from "../../../scripts/labs/faults.ts";
import { openGateways } from "../../../scripts/labs/furnish.ts";
import { Lab } from "../../../scripts/labs/lab.ts";
import { layoutOf } from "../../../scripts/labs/layout.ts";
import { ConnectorsReport, type ConnectorView } from "../../../src/protocol/local/overlay.ts";
import { bundled } from "../bundled.ts";
import { waitFor } from "../wait-for.ts";
import type { ClientNews, ClientOrder } from "./mesh-peer.ts";

const PEER = join(import.meta.dirname, "mesh-peer.ts");
/** Port of the echo server on each host that has one, over TCP and UDP. */
export const ECHO_PORT = 9000;

/** A lab for all tests of a file: gateways gw1 and gw2, and edges a and b on sites of their own. Needs root. */
export interface MeshStage {
  readonly lab: Lab;
  /** Creates a connector of one node to another, and waits until it listens; returns its id. */
  readonly connector: (from: string, item: ConnectorItem) => Promise<string>;
  /** Creates a service, and returns its id. */
  readonly service: (node: string, item: Readonly<Record<string, unknown>>) => Promise<string>;
}

export interface ConnectorItem {
  readonly node: string;
  readonly service: string;
  readonly port: number;
  readonly protocol?: "tcp" | "udp" | "ftp" | "tftp";
}

/** Builds the lab, and the additions of `furnish`, before the tests of the calling file; removes it afterwards. */
export function meshStage(furnish: (stage: MeshStage) => Promise<void> = () => Promise.resolve()): MeshStage {
  const dir = mkdtempSync(join(tmpdir(), "hf-lab-"));
  let built: Lab | undefined;
  const lab = (): Lab => {
    if (built === undefined) throw new Error("the lab is not up");
    return built;
  };
  const stage: MeshStage = {
    get lab() {
      return lab();
    },
    async connector(from, item) {
      const whole = { protocol: "tcp", ...item };
      const { id } = (await lab().call("POST", `/v2/node/{${from}}/config/connectors`, whole)) as { id: string };
      await waitFor(`${from} listens on ${item.port}`, async () =>
        (await connectorsOf(lab(), from)).some((view) => view.listen?.port === item.port && view.state === "listening"),
      );
      return id;
    },
    async service(node, item) {
      const { id } = (await lab().call("POST", `/v2/node/{${node}}/config/services`, item)) as { id: string };
      return id;
    },
  };
  beforeAll(async () => {
    expect(process.getuid?.(), "these tests need root, since they make network namespaces").toBe(0);
    built = await Lab.up(dir, layoutOf(["gw1", "gw2"], { a: [], b: [] }));
    await openGateways(built);
    await startEcho(built, "b");
    await furnish(stage);
  });
  afterAll(async () => {
    await Lab.down(dir, { isAbrupt: true });
    rmSync(dir, { recursive: true, force: true });
  });
  return stage;
}

/** Removes every fault at the end of the test. */
export function healAfter(lab: Lab): void {
  onTestFinished(() => heal(lab));
}

/** Starts an echo server, over TCP and UDP, on every address of a host; it ends with the lab. */
export async function startEcho(lab: Lab, host: string, port = ECHO_PORT): Promise<void> {
  const child = spawn("ip", [...onHost(lab, host), bundled(PEER), "echo", String(port)], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let output = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (output += text));
  await waitFor(`the echo of ${host}`, () => output.includes("ready"));
}

/** The arguments of `ip` that run a script on a host. */
const onHost = (lab: Lab, host: string): readonly string[] => [...lab.network.on(host).slice(1), process.execPath];

/** A client on a host of the lab. */
export interface Talker {
  /** Sends without waiting. */
  send(text: string): void;
  /** Half-closes the connection. */
  end(): void;
  text(): string;
  isConnected(): boolean;
  /** The code of an error, `end` after the other side's half-close, or undefined. */
  fate(): string | undefined;
  kill(): void;
}

/** Returns what a TLS server sends, over one of its protocols or none, to a client without a certificate, until it disconnects. */
export function knock(lab: Lab, on: string, host: string, port: number, alpn: string): string {
  const args = [...onHost(lab, on), bundled(PEER), "knock", host, String(port), alpn];
  return execFileSync("ip", args, { encoding: "utf8", timeout: 120_000 });
}

/** Connects from a host, by default to itself; over UDP with `ask`. It ends with the test. */
export function aTalker(lab: Lab, on: string, port: number, host = "127.0.0.1", role: "talk" | "ask" = "talk"): Talker {
  const orders = new PassThrough();
  const order = (given: ClientOrder): void => void orders.write(`${JSON.stringify(given)}\n`);
  let text = "";
  let isConnected = false;
  let fate: string | undefined;
  const takeNews = (control: Socket): void => {
    orders.pipe(control).on("error", () => undefined);
    const lines = createInterface({ input: control }).on("error", () => undefined);
    lines.on("line", (line) => {
      const news = JSON.parse(line) as ClientNews;
      text += news.text ?? "";
      isConnected ||= news.isConnected === true;
      fate ??= news.fate;
    });
    orders.once("close", () => control.destroy());
    if (orders.destroyed) control.destroy();
  };
  clientsOf(lab, on).then(takeNews, (error: unknown) => (fate ??= String(error)));
  order({ to: { role, host, port } });
  onTestFinished(() => void orders.destroy());
  return {
    send: (text) => order({ send: text }),
    end: () => order({ isEnd: true }),
    text: () => text,
    isConnected: () => isConnected,
    fate: () => fate,
    kill: () => void orders.destroy(),
  };
}

/** Connects to the program that makes the clients of a host; the first starts it. It ends with the lab. */
async function clientsOf(lab: Lab, on: string): Promise<Socket> {
  const path = join(lab.dir, `${on}-clients.sock`);
  const claim = `${path}.claim`;
  if (!existsSync(claim)) {
    writeFileSync(claim, "");
    const log = openSync(`${path}.log`, "a");
    spawn("ip", [...onHost(lab, on), bundled(PEER), "clients", path], { stdio: ["ignore", "ignore", log] });
    closeSync(log);
  }
  return waitFor(`the clients of ${on}`, async () => {
    const control = connect(path);
    await once(control, "connect");
    return control;
  });
}

/** Sends a text and waits for its echo, after everything before it. */
export async function talk(talker: Talker, text: string, limitMs?: number): Promise<void> {
  const before = talker.text();
  talker.send(text);
  const done = (): boolean => talker.text() === before + text || talker.fate() !== undefined;
  await waitFor(`the echo of ${text}`, done, limitMs);
  expect({ text: talker.text(), fate: talker.fate() }).toEqual({ text: before + text, fate: undefined });
}

/** Reports whether a new connection to a port of a host is echoed. */
export async function isServed(lab: Lab, on: string, port: number): Promise<boolean> {
  const talker = aTalker(lab, on, port);
  talker.send("?");
  await waitFor("an answer or an end", () => talker.text() === "?" || talker.fate() !== undefined, 10_000);
  talker.kill();
  return talker.text() === "?";
}

/** Waits until new connections to a port are echoed, and returns one. */
export async function untilServed(lab: Lab, on: string, port: number, limitMs = 120_000): Promise<Talker> {
  const echoed = async (): Promise<Talker | undefined> => {
    const talker = aTalker(lab, on, port);
    talker.send("hello ");
    await waitFor("an answer or an end", () => talker.text() === "hello " || talker.fate() !== undefined, 10_000);
    if (talker.fate() === undefined) return talker;
    talker.kill();
    return undefined;
  };
  return waitFor(`${on} serves ${port}`, echoed, limitMs);
}

/** Waits until a connection has ended. */
export function untilOver(talker: Talker, limitMs?: number): Promise<string> {
  return waitFor("the flow has ended", () => talker.fate(), limitMs);
}

/** Returns a node's connectors. */
export async function connectorsOf(lab: Lab, node: string): Promise<readonly ConnectorView[]> {
  return ConnectorsReport.parse(await askAgent(lab, node, "/v1/connectors")).connectors;
}

/** Returns the controller's flow records of a node. */
export async function flowsOf(lab: Lab, node: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const found = await lab.call("GET", `/v2/flow?nodeIDs={${node}}`);
  return found as readonly Readonly<Record<string, unknown>>[];
}

/** Returns the controller's events of a node, newest first. */
export async function eventsOf(lab: Lab, node: string): Promise<readonly MeshedEvent[]> {
  return (await lab.call("GET", `/v2/event/{${node}}?limit=100&sort=timestamp:desc`)) as readonly MeshedEvent[];
}

export interface MeshedEvent {
  readonly eventType: string;
  readonly level: string;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
}
