import { spawn, type ChildProcess, type SpawnOptions } from "node:child_process";
import { existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { onTestFinished } from "vitest";
import { Health, Status } from "../../../src/protocol/local/answers.ts";
import { changeLocal, readLocal } from "../control-plane/exchange.ts";
import { startAsUnit } from "./real-units.ts";
import { waitFor } from "../wait-for.ts";

export { freePort } from "../free-port.ts";

/** The built bundle and its usual flags. */
export const BUNDLE = join(import.meta.dirname, "../../../dist/holdfast.mjs");
export const FLAGS = ["--disable-sigusr1", "--disable-warning=ExperimentalWarning"];

/** A program of ours in a process of its own. */
export interface Program {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly log: () => string;
  /** Sends a signal and waits for the exit. */
  end(signal?: NodeJS.Signals): Promise<number | null>;
}

export interface ControllerProgram extends Program {
  readonly url: string;
  readonly dir: string;
  readonly key: () => string;
  /** Sends one API call with the admin key; returns the parsed JSON or the text. */
  call(method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }>;
  license(name: string, type?: "Node" | "Agent"): Promise<string>;
}

export interface AgentProgram extends Program {
  readonly stateDir: string;
  readonly runDir: string;
  status(): Promise<Status>;
  health(): Promise<Health>;
}

export interface ProgramOptions extends SpawnOptions {
  /** Command prefix that executes what follows, such as `unshare`. */
  readonly within?: readonly string[];
  /** Registers what ends the program: when the test has finished, by default. */
  readonly onFinished?: (end: () => void) => void;
}

/** Starts the bundle with a verb; output goes to `logPath`. It ends with the test at the latest, or with `onFinished`. */
export function startProgram(args: readonly string[], logPath: string, options: ProgramOptions = {}): Program {
  const { within = [], onFinished = onTestFinished, ...spawning } = options;
  const out = openSync(logPath, "a");
  const [command = "", ...rest] = [...within, process.execPath, ...FLAGS, BUNDLE, ...args];
  const asUnit = { command: [process.execPath, ...FLAGS, BUNDLE, ...args], within, env: spawning.env, log: logPath };
  const child = startAsUnit(asUnit) ?? spawn(command, rest, { ...spawning, stdio: ["ignore", out, out] });
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
  onFinished(() => {
    child.kill("SIGKILL");
  });
  return {
    process: child,
    pid: child.pid ?? 0,
    log: () => readFileSync(logPath, "utf8"),
    end(signal = "SIGTERM") {
      child.kill(signal);
      return ended;
    },
  };
}

/** Starts a controller below `dir` and waits until it answers; with `--tls` among its options it uses HTTPS. */
export async function startController(
  dir: string,
  port: number,
  more: readonly string[] = [],
  options: Pick<ProgramOptions, "env" | "onFinished"> = {},
): Promise<ControllerProgram> {
  mkdirSync(dir, { recursive: true });
  const data = join(dir, "controller");
  const url = `${more.includes("--tls") ? "https" : "http"}://127.0.0.1:${port}`;
  const args = ["controller", "--listen", `127.0.0.1:${port}`, "--data", data, ...more];
  const program = startProgram(args, join(dir, "controller.log"), options);
  await waitFor("the controller answers", async () => {
    if (program.process.exitCode !== null) throw new Error(`the controller ended: ${program.log()}`);
    return (await send(`${url}/healthz`, "GET", {})).status === 200;
  });
  const key = (): string => readFileSync(join(data, "admin.key"), "utf8").trim();
  const call = (method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }> =>
    send(`${url}${path}`, method, { authorization: key() }, body);
  return {
    ...program,
    url,
    dir: data,
    key,
    call,
    async license(name, type = "Node") {
      const { status, body } = await call("GET", `/node/license?name=${name}&type=${type}`);
      if (status !== 200 || typeof body !== "string") throw new Error(`no license: ${status} ${JSON.stringify(body)}`);
      return body;
    },
  };
}

/** Sends one HTTP request; accepts a certificate made by the controller itself. */
function send(
  url: string,
  method: string,
  headers: Readonly<Record<string, string>>,
  body?: unknown,
): Promise<{ status: number; body: unknown }> {
  const request = url.startsWith("https:") ? httpsRequest : httpRequest;
  const sent = body === undefined ? "" : JSON.stringify(body);
  // For a DELETE, Node sends neither a length nor a transfer encoding.
  const ofBody = { "content-type": "application/json", "content-length": Buffer.byteLength(sent) };
  const options = {
    method,
    rejectUnauthorized: false,
    agent: false,
    headers: { ...headers, ...(body === undefined ? {} : ofBody) },
  };
  return new Promise((resolve, reject) => {
    const outgoing = request(url, options, (response) => {
      const isJson = response.headers["content-type"]?.includes("json") === true;
      text(response).then(
        (got) => resolve({ status: response.statusCode ?? 0, body: isJson ? (JSON.parse(got) as unknown) : got }),
        reject,
      );
    });
    outgoing.once("error", reject).end(sent);
  });
}

/** Starts an agent on `dir/state` and `dir/run` and waits for its socket. */
export async function startAgent(
  dir: string,
  options: ProgramOptions & { wait?: boolean; more?: readonly string[] } = {},
): Promise<AgentProgram> {
  mkdirSync(dir, { recursive: true });
  const stateDir = join(dir, "state");
  const runDir = join(dir, "run");
  const { wait = true, more = [], ...starting } = options;
  const args = ["agent", "--state", stateDir, "--run", runDir, ...more];
  const program = startProgram(args, join(dir, "agent.log"), starting);
  if (wait) {
    await waitFor("the agent writes its pid", () => pidOf(runDir) === program.pid);
  }
  return {
    ...program,
    stateDir,
    runDir,
    status: async () => Status.parse(await readLocal(runDir, "/v1/status")),
    health: async () => Health.parse(await readLocal(runDir, "/v1/health")),
  };
}

function pidOf(runDir: string): number | undefined {
  const path = join(runDir, "agent.pid");
  return existsSync(path) ? Number(readFileSync(path, "utf8")) : undefined;
}

/** Runs one CLI verb to its end. */
export function holdfast(
  args: readonly string[],
  input?: string,
  env?: NodeJS.ProcessEnv,
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [...FLAGS, BUNDLE, ...args], { stdio: ["pipe", "pipe", "pipe"], env });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (stdout += chunk));
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (stderr += chunk));
  child.stdin.on("error", () => undefined).end(input);
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, stdout, stderr })));
}

/** Registers a running agent under a name, leaves the license beside its state, and waits until the controller reports it online; returns its uid. */
export async function registerNode(controller: ControllerProgram, agent: AgentProgram, name: string): Promise<string> {
  const text = await controller.license(name);
  writeFileSync(join(agent.stateDir, "..", `${name}.license`), text);
  const { status, body } = await changeLocal(agent.runDir, "/v1/register", { license: text });
  if (status !== 200) throw new Error(`register was answered with ${status}: ${JSON.stringify(body)}`);
  return waitFor(`${name} is online`, async () => {
    const nodes = (await controller.call("GET", "/node")).body as { name: string; uid: string; online: boolean }[];
    return nodes.find((node) => node.name === name && node.online)?.uid;
  });
}
