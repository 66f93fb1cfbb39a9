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
import { onceInRun } from "../once-in-run.ts";
import { waitFor } from "../wait-for.ts";

/** A PostgreSQL server of the test's own, Debian's, on a Unix socket and a port of 127.0.0.1. */
export interface TestPostgres {
  readonly port: number;
  readonly socketDirectory: string;
  /** Makes an empty database, and returns how to reach it. */
  createDatabase(): Promise<PostgresSettings>;
  /** Runs statements as an administrator in a database. */
  query(database: string, text: string): Promise<readonly Record<string, unknown>[]>;
  /** Ends the server as a crash does. */
  kill(): Promise<void>;
  /** Ends the server in order; its clients are disconnected. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Replaces the certificate, which new connections get, and ends the connections. */
  setCertificate(tls: ServerTls): Promise<void>;
  /** Ends all connections of clients. */
  disconnect(): Promise<void>;
  /** Ends the server and removes its files. */
  remove(): Promise<void>;
}

/** Certificate and key in PEM. */
interface ServerTls {
  readonly cert: string;
  readonly key: string;
}

interface PostgresOptions {
  readonly tls?: ServerTls;
  /** First lines of pg_hba.conf. */
  readonly access?: readonly string[];
  /** Further lines of postgresql.conf. */
  readonly settings?: readonly string[];
  /** Directory of its files; one of its own by default. */
  readonly root?: string;
}

const USER = "holdfast";

export async function startPostgres(options: PostgresOptions = {}): Promise<TestPostgres> {
  const { tls, access = [] } = options;
  const programs = globSync("/usr/lib/postgresql/*/bin").sort().at(-1);
  if (programs === undefined) throw new Error("the package postgresql is not installed");
  const owner = serverUser();
  const root = options.root ?? mkdtempSync(join(tmpdir(), "hf-pg-"));
  const data = join(root, "data");
  const port = await freePort();
  if (owner.uid !== undefined) chownSync(root, owner.uid, owner.gid);
  const env = { PATH: process.env["PATH"], LC_ALL: "C" };
  const cluster = await onceInRun("postgres-cluster", (dir) => {
    if (owner.uid !== undefined) chownSync(dir, owner.uid, owner.gid);
    // What PostgreSQL syncs survives a power cut, which no test here makes.
    const initial = ["-D", join(dir, "data"), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
    execFileSync(join(programs, "initdb"), initial, { ...owner, env, cwd: dir, stdio: "pipe" });
    return Promise.resolve();
  });
  execFileSync("cp", ["-a", join(cluster, "data"), data]);
  const hba = join(data, "pg_hba.conf");
  writeFileSync(hba, [...access, readFileSync(hba, "utf8")].join("\n"));
  const settings = [`port=${port}`, `listen_addresses='127.0.0.1'`, `unix_socket_directories='${root}'`, "fsync=off"];
  settings.push(...(options.settings ?? []));
  const writeCertificate = ({ cert, key }: ServerTls): void => {
    const files = [
      ["cert.pem", cert],
      ["key.pem", key],
    ] as const;
    for (const [name, content] of files) {
      const path = join(root, "tls", name);
      writeFileSync(path, content, { mode: 0o600 });
      if (owner.uid !== undefined) chownSync(path, owner.uid, owner.gid);
    }
  };
  if (tls !== undefined) {
    mkdirSync(join(root, "tls"));
    chmodSync(join(root, "tls"), 0o755);
    writeCertificate(tls);
    settings.push("ssl=on", ...["cert", "key"].map((name) => `ssl_${name}_file='${join(root, "tls", name)}.pem'`));
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
  const disconnect = async (): Promise<void> => {
    const others = "pid <> pg_backend_pid() AND backend_type = 'client backend'";
    await query("postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${others}`);
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
    disconnect,
    kill: () => end("SIGKILL"),
    stop: () => end("SIGINT"),
    async setCertificate(changed) {
      writeCertificate(changed);
      await query("postgres", "SELECT pg_reload_conf()");
      await disconnect();
    },
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
