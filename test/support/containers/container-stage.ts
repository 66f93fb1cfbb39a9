import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WhyReport } from "../../../src/protocol/documents/reconcile.ts";
import { startEngine, type EngineOptions, type TestEngine } from "./docker-engine.ts";
import { startEngineProxy, type EngineProxy } from "./engine-proxy.ts";
import { authHeader } from "../../../src/host/engine/pull.ts";
import { imageTar, UNTIL_STOPPED, type ImageOptions } from "./images.ts";
import { changeLocal, exchange, readLocal, type Answer } from "../control-plane/exchange.ts";
import { hastened } from "../fake-time.ts";
import { freePort } from "../free-port.ts";
import { leadPorts } from "../overlay/led-ports.ts";
import { namedPrograms } from "../machine/named-programs.ts";
import { endUnitsBelow } from "../machine/real-units.ts";
import { waitFor } from "../wait-for.ts";

export interface ContainerStageOptions {
  /** Removed at the end; a temporary directory by default. Its name must be short, since it holds sockets. */
  readonly dir?: string;
  /** The port of the controller, on 127.0.0.1. */
  readonly port?: number;
  readonly engine?: Omit<EngineOptions, "dir" | "network">;
  /** Restarts an agent that is killed, as a service manager does. */
  readonly restartsAgent?: boolean;
  /** Size of the disk with the engine's images, in megabytes. */
  readonly diskMb?: number;
  /** Whether the node has an engine when it starts; true by default. */
  readonly hasEngine?: boolean;
  /** `containers` in the node's agent.json when the agent first starts. */
  readonly policy?: Readonly<Record<string, unknown>>;
  /** Speed of the agent's clock as a multiple of real time: it polls that much more often. */
  readonly haste?: number;
}

/** A container of the engine, as it lists it. */
export interface Listed {
  readonly Id: string;
  readonly Names: readonly string[];
  readonly Image: string;
  readonly State: string;
  readonly Labels: Readonly<Record<string, string>>;
}

/** The parts of a container's inspection that tests read. */
export interface Inspected {
  readonly Id: string;
  /** Id of its image. */
  readonly Image: string;
  readonly RestartCount: number;
  readonly State: {
    readonly Status: string;
    readonly StartedAt: string;
    readonly Pid: number;
    readonly ExitCode: number;
  };
  readonly Config: { readonly Image: string; readonly Labels: Readonly<Record<string, string>> };
  readonly HostConfig: Readonly<Record<string, unknown>>;
}

/**
 * A controller, a node and an engine with a registry, all real. Agent and engine share a network namespace, from which a forwarder leads to
 * the controller; a proxy is between agent and engine. Needs no test runner.
 */
export interface ContainerStage {
  readonly dir: string;
  readonly url: string;
  readonly uid: string;
  readonly runDir: string;
  readonly stateDir: string;
  readonly engine: TestEngine;
  readonly proxy: EngineProxy;
  /** `127.0.0.1:port` of the registry, the prefix of its repositories. */
  readonly registryHost: string;
  readonly namespace: string;
  readonly key: () => string;
  /** Process id of the agent; 0 without one. */
  readonly pid: number;
  readonly agentLog: () => string;
  call(method: string, path: string, body?: unknown): Promise<Answer>;
  /** Adds or replaces a container with its configuration; a service of the local image by default. */
  put(name: string, definition?: Readonly<Record<string, unknown>>): Promise<Answer>;
  remove(name: string): Promise<Answer>;
  /** The node's reasons in `why`. */
  why(): Promise<WhyReport["reasons"]>;
  /** Waits until the node reports a reason for the section, or one of its items, that matches. */
  untilWhy(text: RegExp, limitMs?: number): Promise<string>;
  /** Lists all containers of a definition, by its label. */
  containers(name: string): Promise<readonly Listed[]>;
  /** Waits until the definition has exactly one container, which runs, with this image (or any). */
  untilRuns(name: string, image?: string, limitMs?: number): Promise<Listed>;
  untilGone(name: string): Promise<void>;
  /** Makes an image, pushes it to the registry as `<namespace>/<path>:<tag>`, and removes it from the engine. Returns its digest. */
  publish(path: string, tag: string, options?: Omit<ImageOptions, "tag">): Promise<string>;
  startRegistry(): Promise<void>;
  stopRegistry(): Promise<void>;
  /** Returns the engine's inspection of a container. */
  inspect(container: string): Promise<Inspected>;
  /** Returns the section's facts in the node's shadow. */
  reported(): Promise<Readonly<Record<string, unknown>>>;
  /** Sets `containers` in the node's agent.json, from the next start of the agent. */
  setPolicy(containers: Readonly<Record<string, unknown>>): void;
  startController(): Promise<void>;
  endController(): Promise<void>;
  startAgent(): Promise<void>;
  endAgent(signal?: NodeJS.Signals): Promise<void>;
  close(): Promise<void>;
}

const BUNDLE = join(import.meta.dirname, "../../../dist/holdfast.mjs");
const FLAGS = ["--disable-sigusr1", "--disable-warning=ExperimentalWarning"];
const NAMESPACE = "holdfast.example";
/** A new definition without any part of its configuration would wait for one. */
const LOGGING = { maxFileSize: 1, numFiles: 2 };
/** An image that is always present; no registry has it. */
export const LOCAL_IMAGE = { repository: "local/app", tag: "1" };

/** Returns the id of the definition with a name: a UUID of its hash (RFC 9562 §5.8). */
export function idOf(name: string): string {
  const hash = createHash("sha256").update(name).digest("hex");
  return `${hash.slice(0, 8)}-${hash.slice(8, 12)}-8${hash.slice(13, 16)}-a${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
}

/** Starts the stage. The caller closes it; the rest ends with this process. Needs root. */
export async function startContainerStage(options: ContainerStageOptions = {}): Promise<ContainerStage> {
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), "hf-"));
  mkdirSync(dir, { recursive: true });
  const [stateDir, runDir] = [join(dir, "node"), join(dir, "run")];
  const ending: (() => Promise<unknown> | void)[] = [];
  if (options.diskMb !== undefined) ending.push(mountDisk(join(dir, "e/d"), options.diskMb));
  const engine = await startEngine({ ...options.engine, dir: join(dir, "e") });
  ending.push(() => engine.stop());
  let isClosing = false;
  const close = async (): Promise<void> => {
    isClosing = true;
    for (const end of ending.splice(0).reverse()) await end();
    endUnitsBelow(dir);
    if (options.dir === undefined) rmSync(dir, { recursive: true, force: true });
  };
  try {
    const port = options.port ?? (await freePort());
    const registryPort = await freePort();
    const registryHost = `127.0.0.1:${registryPort}`;
    const url = `http://127.0.0.1:${port}`;
    const data = join(dir, "controller");
    const proxy = await startEngineProxy(join(dir, "p.sock"), engine.socketPath);
    ending.push(() => proxy.close());
    if (options.hasEngine === false) await proxy.close();
    ending.push(await leadPorts(dir, engine, [port, registryPort]));

    const programs = namedPrograms(dir);
    ending.push(() => programs.end());
    const startController = async (): Promise<void> => {
      const served = ["controller", "--listen", `127.0.0.1:${port}`, "--data", data];
      const about = ["--domain", NAMESPACE, "--registry", `http://${registryHost}`, "--registry-host", registryHost];
      programs.start("controller", [process.execPath, ...FLAGS, BUNDLE, ...served, ...about]);
      await waitFor("the controller answers", async () => (await exchange(url, "GET", "/healthz", "")).status === 200);
    };
    await startController();
    const key = (): string => readFileSync(join(data, "admin.key"), "utf8").trim();
    const call: ContainerStage["call"] = (method, path, body) => exchange(url, method, path, key(), body);

    const startRegistry = async (): Promise<void> => {
      const config = join(dir, "registry.yml");
      writeFileSync(config, registryConfig(dir, registryHost, url, join(data, "registry/cert.pem")));
      programs.start("registry", ["docker-registry", "serve", config]);
      const origin = `http://${registryHost}`;
      await waitFor("the registry answers", async () => (await exchange(origin, "GET", "/v2/", "")).status === 401);
    };
    await startRegistry();

    const settings = join(dir, "agent.json");
    const setPolicy = (containers: Readonly<Record<string, unknown>>): void =>
      writeFileSync(settings, JSON.stringify({ engineSocket: proxy.socketPath, logLevel: "debug", containers }));
    setPolicy(options.policy ?? {});
    const haste = options.haste === undefined ? [] : hastened(options.haste);
    const startAgent = async (): Promise<void> => {
      const args = ["agent", "--state", stateDir, "--run", runDir, "--config", settings];
      const child = programs.start("agent", [...engine.within, ...haste, process.execPath, ...FLAGS, BUNDLE, ...args]);
      child.once("exit", (_, signal) => {
        if (options.restartsAgent === true && signal === "SIGKILL" && !isClosing) void startAgent();
      });
      const pidFile = join(runDir, "agent.pid");
      await waitFor(
        "the agent is ready",
        () => existsSync(pidFile) && Number(readFileSync(pidFile, "utf8")) === child.pid,
      );
    };
    await startAgent();
    const uid = await registered(call, runDir);
    await load(engine, { tag: `${LOCAL_IMAGE.repository}:${LOCAL_IMAGE.tag}`, command: UNTIL_STOPPED });

    const stage: ContainerStage = {
      dir,
      url,
      uid,
      runDir,
      stateDir,
      engine,
      proxy,
      registryHost,
      namespace: NAMESPACE,
      key,
      get pid() {
        return programs.pid("agent");
      },
      agentLog: () => readFileSync(join(dir, "agent.log"), "utf8"),
      call,
      async put(name, definition = {}) {
        const base = `/v2/node/${uid}/exec/container`;
        const id = idOf(name);
        const record = { execType: "service", image: LOCAL_IMAGE, stopTime: 1, logging: LOGGING, name, ...definition };
        const isKnown = (await call("GET", `${base}/${id}`)).status === 200;
        return isKnown ? call("PUT", `${base}/${id}`, record) : call("POST", base, { id, ...record });
      },
      remove: (name) => call("DELETE", `/v2/node/${uid}/exec/container/${idOf(name)}`),
      why: async () => WhyReport.parse(await readLocal(runDir, "/v1/why")).reasons,
      async untilWhy(text, limitMs = 120_000) {
        let last = "nothing";
        const look = async (): Promise<string | undefined> => {
          const reasons = (await stage.why()).map(({ code, message }) => `${code} ${message}`);
          last = JSON.stringify(reasons);
          return reasons.find((reason) => text.test(reason));
        };
        return waitFor(`the node says ${String(text)}`, look, limitMs).catch((error: unknown) => {
          throw new Error(`it says ${last}, and not ${String(text)}`, { cause: error });
        });
      },
      async containers(name) {
        const filters = encodeURIComponent(JSON.stringify({ label: [`io.holdfast.container=${idOf(name)}`] }));
        const { body } = await engine.call("GET", `/containers/json?all=1&filters=${filters}`);
        return body as Listed[];
      },
      async untilRuns(name, image, limitMs = 120_000) {
        let last = "nothing";
        const look = async (): Promise<Listed | undefined> => {
          const all = await stage.containers(name);
          last = JSON.stringify(all.map(({ Names, State, Image }) => ({ Names, State, Image })));
          const [one] = all;
          const isNamed = one?.Names.length === 1 && one.Names[0] === `/holdfast-${idOf(name)}`;
          const isIt = all.length === 1 && isNamed && one.State === "running";
          return isIt && (image === undefined || one.Image === image) ? one : undefined;
        };
        return waitFor(`one container of ${name} runs`, look, limitMs).catch(async (error: unknown) => {
          const wanted = `one that runs${image === undefined ? "" : ` ${image}`}`;
          const reasons = JSON.stringify(await stage.why().catch(String));
          throw new Error(`there is ${last} of ${name}, and not ${wanted}: ${reasons}`, { cause: error });
        });
      },
      async untilGone(name) {
        await waitFor(`nothing is left of ${name}`, async () => (await stage.containers(name)).length === 0);
      },
      publish: (path, tag, image = {}) => publish(stage, path, tag, image),
      async inspect(container) {
        const { status, body } = await engine.call("GET", `/containers/${container}/json`);
        if (status !== 200) throw new Error(`no container ${container}: ${JSON.stringify(body)}`);
        return body as Inspected;
      },
      async reported() {
        const query = "projection[0][0]=shadow&projection[0][1]=reported&projection[]=uid";
        const nodes = (await call("GET", `/node?${query}`)).body as {
          shadow?: { reported?: Record<string, unknown> };
        }[];
        return nodes[0]?.shadow?.reported ?? {};
      },
      setPolicy,
      startController,
      endController: () => programs.endOne("controller", "SIGTERM"),
      startRegistry,
      stopRegistry: () => programs.endOne("registry", "SIGKILL"),
      startAgent,
      endAgent: (signal = "SIGTERM") => programs.endOne("agent", signal),
      close,
    };
    // Containers survive a killed engine; only the engine can stop them.
    ending.push(() => emptied(engine));
    return stage;
  } catch (error) {
    await close();
    throw error;
  }
}

/** Mounts a disk, and returns the function that unmounts it. */
function mountDisk(path: string, sizeMb: number): () => void {
  mkdirSync(path, { recursive: true });
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${sizeMb}m`, "small-disk", path]);
  // The directory is removed when the engine stops.
  return () => void spawnSync("umount", ["-l", path], { stdio: "ignore" });
}

/** Makes an image in the engine. */
async function load(engine: TestEngine, image: ImageOptions): Promise<void> {
  const { status, body } = await engine.call("POST", "/images/load?quiet=1", imageTar(image));
  if (status !== 200) throw new Error(`no image ${image.tag}: ${JSON.stringify(body)}`);
}

async function publish(
  { engine, registryHost, key }: ContainerStage,
  path: string,
  tag: string,
  image: Omit<ImageOptions, "tag">,
): Promise<string> {
  const reference = `${registryHost}/${NAMESPACE}/${path}:${tag}`;
  await load(engine, { command: UNTIL_STOPPED, ...image, tag: reference });
  const credential = authHeader({ username: "admin", password: key(), server: registryHost });
  const pushed = await engine.call("POST", `/images/${registryHost}/${NAMESPACE}/${path}/push?tag=${tag}`, undefined, {
    "x-registry-auth": credential,
  });
  const output = typeof pushed.body === "string" ? pushed.body : JSON.stringify(pushed.body);
  const [digest] = /sha256:[0-9a-f]{64}(?= size)/.exec(output) ?? [];
  if (digest === undefined) throw new Error(`push of ${reference}: ${pushed.status} ${output}`);
  await engine.call("DELETE", `/images/${reference}`);
  return digest;
}

async function registered(call: ContainerStage["call"], runDir: string): Promise<string> {
  const { status, body } = await call("GET", "/node/license?name=edge&type=Node");
  if (status !== 200) throw new Error(`no license: ${status} ${JSON.stringify(body)}`);
  const asked = await changeLocal(runDir, "/v1/register", { license: String(body) });
  if (asked.status !== 200) throw new Error(`register: ${asked.status} ${JSON.stringify(asked.body)}`);
  return waitFor("the node is online", async () => {
    const nodes = (await call("GET", "/node")).body as { uid: string; online: boolean }[];
    return nodes.find(({ online }) => online)?.uid;
  });
}

function registryConfig(dir: string, host: string, realm: string, certificate: string): string {
  return [
    "version: 0.1",
    "log: {level: warn}",
    `storage: {filesystem: {rootdirectory: ${join(dir, "images")}}, delete: {enabled: true}}`,
    `http: {addr: "${host}"}`,
    "auth:",
    "  token:",
    `    realm: ${realm}/registry/token`,
    "    service: holdfast-registry",
    "    issuer: holdfast",
    `    rootcertbundle: ${certificate}`,
    "",
  ].join("\n");
}

async function emptied(engine: TestEngine): Promise<void> {
  engine.thaw();
  if (engine.pid === 0) await engine.start();
  const { body } = await engine.call("GET", "/containers/json?all=1");
  for (const { Id } of body as Listed[]) await engine.call("DELETE", `/containers/${Id}?force=1`);
}
