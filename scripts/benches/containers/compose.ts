// docker-compose over the same engine, through a proxy of its own that counts.
import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TestEngine } from "../../../test/support/containers/docker-engine.ts";
import { startEngineProxy } from "../../../test/support/containers/engine-proxy.ts";

export interface Cost {
  readonly ms: number;
  /** Requests to the engine. */
  readonly requests: number;
}

/** A set of services that docker-compose(1) looks after. */
export interface Compose {
  /** Writes the file and has it carried out: `release` by service, in their order. */
  up(releases: readonly string[]): Promise<Cost>;
  close(): Promise<void>;
}

const run = promisify(execFile);

/** Makes one over an engine; nothing runs yet. */
export async function startCompose(dir: string, engine: TestEngine, image: string): Promise<Compose> {
  mkdirSync(dir, { recursive: true });
  const proxy = await startEngineProxy(join(dir, "c.sock"), engine.socketPath);
  const file = join(dir, "docker-compose.yml");
  const env = { PATH: process.env["PATH"] ?? "", HOME: dir, DOCKER_HOST: `unix://${proxy.socketPath}` };
  const compose = (...args: readonly string[]) =>
    run("docker-compose", ["--project-name", "peer", "--file", file, ...args], { env, cwd: dir, maxBuffer: 1 << 24 });
  return {
    async up(releases) {
      const services = releases.map((release, at) => [
        `  service-${at}:`,
        `    image: ${image}`,
        `    restart: unless-stopped`,
        `    stop_grace_period: 1s`,
        `    environment: ["RELEASE=${release}"]`,
      ]);
      writeFileSync(file, `version: "2.4"\nservices:\n${services.flat().join("\n")}\n`);
      proxy.forget();
      const begun = performance.now();
      await compose("up", "-d", "--no-color");
      return { ms: performance.now() - begun, requests: proxy.requests.length };
    },
    async close() {
      await compose("down", "--timeout", "1");
      await proxy.close();
    },
  };
}
