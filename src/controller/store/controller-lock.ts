import { randomUUID } from "node:crypto";
import { Client, type ClientConfig } from "pg";
import { z } from "zod";
import { HostError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { storeError, unavailable } from "./postgres-errors.ts";

/** The controller that uses a database, as the message to a second one names it. */
export interface LockHolder {
  readonly name: string;
  readonly address: string;
  /** Start of the program, RFC 3339. */
  readonly startedAt: string;
}

export interface LockOptions {
  readonly connection: ClientConfig;
  /** Text that names the database in messages. */
  readonly address: string;
  readonly holder: LockHolder;
  readonly checkMs: number;
  readonly clock: Clock;
  /** Called once if another controller has had the lock meanwhile: what this one has in memory may be wrong, so it must end. */
  readonly onTakenOver: (error: HostError) => void;
}

/** The lock of the one controller that may use a database. */
export interface ControllerLock {
  /** @throws {HostError} `store-unavailable` while the lock is lost */
  check(): void;
  release(): Promise<void>;
}

/** Key of the advisory lock: the letters of "holdfast". */
const KEY = Buffer.from("holdfast").readBigInt64BE().toString();

/** The server ends a silent connection, and so frees the lock, after 25 seconds at the earliest; checks notice it within 15. */
const SESSION = [
  "tcp_keepalives_idle=10",
  "tcp_keepalives_interval=5",
  "tcp_keepalives_count=3",
  "tcp_user_timeout=25000",
  "idle_session_timeout=0",
];
const ANSWER_MS = 10_000;

const TABLE = `CREATE TABLE IF NOT EXISTS controller_lock (
  id bigint PRIMARY KEY CHECK (id = 1), token text NOT NULL, pid bigint NOT NULL, name text NOT NULL, address text NOT NULL,
  started_at text NOT NULL)`;
const FIND = "SELECT token FROM controller_lock WHERE id = 1";
const PUT = `INSERT INTO controller_lock VALUES (1, $1, pg_backend_pid(), $2, $3, $4)
  ON CONFLICT (id) DO UPDATE SET token = excluded.token, pid = excluded.pid, name = excluded.name, address = excluded.address,
  started_at = excluded.started_at`;
/** The row is that of the holder only if its connection holds the lock; the holder writes it right after it took the lock. */
const HOLDER = `SELECT token, name, address, started_at FROM controller_lock WHERE pid IN (
  SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (classid::bigint << 32 | objid::bigint) = $1::bigint)`;

const Holder = z.object({ token: z.string(), name: z.string(), address: z.string(), started_at: z.string() });
const Token = z.object({ token: z.string() });

/**
 * Takes the lock of a database, on a connection of its own, and takes it again when it is lost with that connection. The server
 * frees the lock of a silent connection later than the check here notices that it is lost, so that no two controllers believe to
 * hold it.
 * @throws {HostError} `state-locked` if another controller holds it, `store-unavailable` if the database cannot be reached
 */
export async function takeLock(options: LockOptions): Promise<ControllerLock> {
  const { address, clock, checkMs, onTakenOver } = options;
  const token = randomUUID();
  const ended = new AbortController();
  let lost: HostError | undefined;
  let client: Client | undefined;

  const lose = (from: Client, error: unknown): void => {
    if (client !== from) return;
    client = undefined;
    lost = unavailable(address, `the lock of this controller is lost: ${toError(error).message}`, error);
    void from.end().catch(() => undefined);
  };
  const take = async (isFirst: boolean): Promise<void> => {
    const fresh = new Client({
      ...options.connection,
      options: SESSION.map((setting) => `-c ${setting}`).join(" "),
      query_timeout: ANSWER_MS,
    });
    const ignored = (): void => undefined;
    fresh.on("error", ignored);
    try {
      await fresh.connect();
      await lock(fresh, options, token, isFirst);
      // Released meanwhile: the lock must not stay held.
      ended.signal.throwIfAborted();
    } catch (error) {
      void fresh.end().catch(() => undefined);
      throw storeError(error, address);
    }
    client = fresh;
    lost = undefined;
    fresh.on("error", (error) => lose(fresh, error));
    fresh.on("end", () => lose(fresh, new Error("the connection ended")));
  };
  const watch = async (): Promise<void> => {
    for (;;) {
      await clock.sleep(checkMs, ended.signal);
      const held = client;
      try {
        if (held === undefined) await take(false);
        else await held.query("SELECT 1");
      } catch (error) {
        if (held !== undefined) lose(held, error);
        // What prevents that it is taken again matters more than how it was lost.
        else if (error instanceof HostError && error.code === "store-unavailable") lost = error;
        if (!(error instanceof TakenOver)) continue;
        onTakenOver(error);
        return;
      }
    }
  };

  await take(true);
  const watching = watch().catch(() => undefined);
  return {
    check() {
      if (lost !== undefined) throw lost;
    },
    async release() {
      const held = client;
      client = undefined;
      lost = unavailable(address, "this controller has released it");
      ended.abort(lost);
      await held?.end().catch(() => undefined);
      await watching;
    },
  };
}

/** Another controller has had the lock since this one lost it. */
class TakenOver extends HostError {
  static override readonly name = "TakenOver";

  constructor(address: string, by: string) {
    super(
      "store-unavailable",
      `the store ${address} was used by ${by} since this one lost its lock; it must be restarted`,
    );
  }
}

async function lock(client: Client, { address, holder }: LockOptions, token: string, isFirst: boolean): Promise<void> {
  const taken = await client.query(`SELECT pg_try_advisory_lock(${KEY}) AS "isTaken"`);
  if (
    z
      .array(z.object({ isTaken: z.literal(true) }))
      .length(1)
      .safeParse(taken.rows).success
  ) {
    await client.query(TABLE);
    const [last] = z.array(Token).parse((await client.query(FIND)).rows);
    if (!isFirst && last?.token !== token) throw new TakenOver(address, "another controller");
    await client.query(PUT, [token, holder.name, holder.address, holder.startedAt]);
    return;
  }
  const found = await otherHolder(client);
  const by =
    found === undefined
      ? "another controller that has just started"
      : `the controller ${found.name} at ${found.address}, started at ${found.started_at}`;
  // The server may not have noticed yet that the connection that held it is gone.
  if (!isFirst && found !== undefined && found.token !== token) throw new TakenOver(address, by);
  throw new HostError("state-locked", `the store ${address} is held by ${by}; end that one, or name another database`, {
    details: found === undefined ? {} : { name: found.name, address: found.address, startedAt: found.started_at },
  });
}

async function otherHolder(client: Client): Promise<z.infer<typeof Holder> | undefined> {
  const table = await client.query("SELECT 1 FROM pg_tables WHERE tablename = 'controller_lock'");
  if (table.rowCount === 0) return undefined;
  return z.array(Holder).parse((await client.query(HOLDER, [KEY])).rows)[0];
}
