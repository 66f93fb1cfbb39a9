import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, openSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { deathTie } from "../../../src/host/process/death-tie.ts";
import { authHeader } from "../../../src/host/engine/pull.ts";
import { SEARCH_PATH } from "../../../src/host/process/exec.ts";
import type { TestEngine } from "./docker-engine.ts";
import { freePort } from "../machine/programs.ts";
import { waitFor } from "../wait-for.ts";

export interface RegistryOptions {
  /** The user of the registry, by htpasswd(1); open to all by default. */
  readonly user?: { readonly name: string; readonly password: string };
  /** Further environment variables, for example `REGISTRY_AUTH_TOKEN_REALM`. */
  readonly env?: Readonly<Record<string, string>>;
  readonly port?: number;
  /** A command prefix that enters another network namespace, for example `TestEngine.within`. */
  readonly within?: readonly string[];
}

/** A real image registry on 127.0.0.1, Debian's docker-registry. */
export interface TestRegistry {
  /** `127.0.0.1:port`, the first part of a reference. */
  readonly host: string;
  readonly port: number;
  stop(): Promise<void>;
}

/** Starts a registry below `dir`. The caller stops it; at the latest it ends with the test program. */
export async function startRegistry(dir: string, options: RegistryOptions = {}): Promise<TestRegistry> {
  const { user, env = {}, within = [] } = options;
  mkdirSync(dir, { recursive: true });
  const port = options.port ?? (await freePort());
  const config = join(dir, "registry.yml");
  const lines = [
    "version: 0.1",
    "log: {level: warn}",
    `storage: {filesystem: {rootdirectory: ${join(dir, "data")}}, delete: {enabled: true}}`,
  ];
  lines.push(`http: {addr: "127.0.0.1:${port}"}`);
  if (user !== undefined) {
    const file = join(dir, "htpasswd");
    writeFileSync(file, execFileSync("htpasswd", ["-Bbn", "-C", "5", user.name, user.password]));
    lines.push(`auth: {htpasswd: {realm: test, path: ${file}}}`);
  }
  writeFileSync(config, `${lines.join("\n")}\n`);
  const out = openSync(join(dir, "registry.log"), "a");
  const tied = deathTie(SEARCH_PATH)({ file: "docker-registry", args: ["serve", config] });
  const [command = "", ...args] = [...within, tied.file, ...tied.args];
  const child = spawn(command, args, { stdio: ["ignore", out, out], env: { PATH: SEARCH_PATH, ...env } });
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const probe = [...within, "sh", "-c", `nc -z 127.0.0.1 ${port}`];
  await waitFor("the registry answers", () => (within.length === 0 ? answers(port) : runs(probe)));
  return {
    host: `127.0.0.1:${port}`,
    port,
    async stop() {
      child.kill("SIGKILL");
      await gone;
    },
  };
}

/** Tags an image of the engine for a registry and pushes it; the engine keeps only the old name. */
export async function pushImage(
  engine: TestEngine,
  image: string,
  reference: { readonly repository: string; readonly tag: string },
  user?: RegistryOptions["user"],
): Promise<void> {
  const { repository, tag } = reference;
  const credential = { username: user?.name ?? "", password: user?.password ?? "", server: "" };
  const header = authHeader(credential);
  await engine.call("POST", `/images/${image}/tag?repo=${encodeURIComponent(repository)}&tag=${tag}`);
  const { status, body } = await engine.call("POST", `/images/${repository}/push?tag=${tag}`, undefined, {
    "x-registry-auth": header,
  });
  const output = typeof body === "string" ? body : JSON.stringify(body);
  if (status !== 200 || output.includes("errorDetail")) throw new Error(`push of ${repository}: ${status} ${output}`);
  await engine.call("DELETE", `/images/${repository}:${tag}`);
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    request({ host: "127.0.0.1", port, path: "/v2/", agent: false }, (response) => {
      response.resume();
      resolve(true);
    })
      .once("error", () => resolve(false))
      .end();
  });
}

function runs([command = "", ...args]: readonly string[]): boolean {
  try {
    execFileSync(command, args, { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
