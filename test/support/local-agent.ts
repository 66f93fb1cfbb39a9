import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { serveLocalApi, type LocalApiLimits } from "../../src/agent/local-api/server.ts";
import { systemClock } from "../../src/host/clock.ts";
import { FakeLocalProvider } from "./fake-local-provider.ts";

export interface Directories extends AsyncDisposable {
  readonly root: string;
  readonly runDir: string;
  readonly stateDir: string;
}

/** Fresh directories for one test; `runDir` and `stateDir` do not exist yet. */
export async function someDirectories(): Promise<Directories> {
  const root = await mkdtemp(join(tmpdir(), "hf-"));
  return {
    root,
    runDir: join(root, "run"),
    stateDir: join(root, "state"),
    [Symbol.asyncDispose]: () => rm(root, { recursive: true, force: true }),
  };
}

export interface LocalAgent extends Directories {
  readonly provider: FakeLocalProvider;
  close(): Promise<void>;
}

/** The real local API over a fake agent. */
export async function startLocalAgent(limits: Partial<LocalApiLimits> = {}): Promise<LocalAgent> {
  const directories = await someDirectories();
  const provider = new FakeLocalProvider();
  const { runDir } = directories;
  const api = await serveLocalApi({ runDir, provider, log: pino({ level: "silent" }), clock: systemClock(), limits });
  return {
    ...directories,
    provider,
    close: () => api.close(),
    async [Symbol.asyncDispose]() {
      await api.close();
      await directories[Symbol.asyncDispose]();
    },
  };
}
