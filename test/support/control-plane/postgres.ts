import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  chmodSync,
  chownSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import type { PostgresSettings } from "../../../src/controller/store/postgres-settings.ts";
import { freePort } from "../free-port.ts";
import { waitFor } from "../wait-for.ts";

/** A PostgreSQL server of the test's own, Debian's, on a Unix socket and a port of 127.0.0.1. */
export interface TestPostgres {
  readonly port: number;
  readonly socketDirectory: string;
  /** Makes an empty database, and returns how to reach it. */
  createDatabase(): Promise<PostgresSettings>;
  /** Runs statements as an administrator in a database. */
  query(database: string, text: string): Promise<readonly Record<string, unknown>[]>;
  /** Ends the server as a crash does, and waits until nothing is left of it. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Ends the server and removes its files. */
  remove(): Promise<void>;
}

interface PostgresOptions {
  /** Certificate and key in PEM, for TLS. */
  readonly tls?: { readonly cert: string; readonly key: string };
  /** First lines of pg_hba.conf. */
  readonly access?: readonly string[];
}

const USER = "holdfast";

export async function startPostgres({ tls, access = [] }: PostgresOptions = {}): Promise<TestPostgres> {
  const programs = globSync("/usr/lib/postgresql/*/bin").sort().at(-1);
  if (programs === undefined) throw new Error("the package postgresql is not installed");
  const owner = serverUser();
  const root = mkdtempSync(join(tmpdir(), "hf-pg-"));
  const data = join(root, "data");
  const port = await freePort();
  if (owner.uid !== undefined) chownSync(root, owner.uid, owner.gid);
  const env = { PATH: process.env["PATH"], LC_ALL: "C" };
  // What PostgreSQL syncs survives a power cut, which no test here makes.
  const initial = ["-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
  execFileSync(join(programs, "initdb"), initial, { ...owner, env, cwd: root, stdio: "pipe" });
  const hba = join(data, "pg_hba.conf");
  writeFileSync(hba, [...access, readFileSync(hba, "utf8")].join("\n"));
  const settings = [`port=${port}`, `listen_addresses='127.0.0.1'`, `unix_socket_directories='${root}'`, "fsync=off"];
  if (tls !== undefined) {
    mkdirSync(join(root, "tls"));
    for (const [name, content] of [
      ["cert.pem", tls.cert],
      ["key.pem", tls.key],
    ] as const) {
      const path = join(root, "tls", name);
      writeFileSync(path, content, { mode: 0o600 });
      if (owner.uid !== undefined) chownSync(path, owner.uid, owner.gid);
      settings.push(`ssl_${name.replace(".pem", "")}_file='${path}'`);
    }
    chmodSync(join(root, "tls"), 0o755);
    settings.push("ssl=on");
  }
  appendFileSync(join(data, "postgresql.conf"), `\n${settings.join("\n")}\n`);
  let server: ChildProcess | undefined;
  let databases = 0;

  const query: TestPostgres["query"] = async (database, text) => {
    const client = new Client({ host: root, port, user: USER, database, ssl: false, password: () => "" });
    client.on("error", () => undefined);
    await client.connect();
    try {
      return (await client.query<Record<string, unknown>>(text)).rows;
    } finally {
      await client.end();
    }
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    const running = server;
    server = undefined;
    if (running === undefined || running.exitCode !== null) return;
    const ended = once(running, "exit");
    running.kill(signal);
    await ended;
  };
  const start = async (): Promise<void> => {
    await waitFor("PostgreSQL to accept connections", async () => {
      // After a crash the processes of connections go on for a moment, and a new server refuses to start beside them.
      if (server === undefined || server.exitCode !== null) {
        server = spawn(join(programs, "postgres"), ["-D", data], { ...owner, env, cwd: root, stdio: "ignore" });
      }
      await query("postgres", "SELECT 1");
      return true;
    });
  };
  await start();
  return {
    port,
    socketDirectory: root,
    async createDatabase() {
      databases += 1;
      const database = `store${databases}`;
      await query("postgres", `CREATE DATABASE ${database}`);
      return { address: { host: root, port, user: USER, database, isVerified: false } };
    },
    query,
    start,
    kill: () => end("SIGKILL"),
    async remove() {
      await end("SIGINT");
      rmSync(root, { recursive: true, force: true });
    },
  };
}

/** PostgreSQL refuses to run as root. */
function serverUser(): { readonly uid: number; readonly gid: number } | { readonly uid?: never; readonly gid?: never } {
  if (process.getuid?.() !== 0) return {};
  const number = (flag: string): number => Number(execFileSync("id", [flag, "postgres"], { encoding: "utf8" }));
  return { uid: number("-u"), gid: number("-g") };
}
