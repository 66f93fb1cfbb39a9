import { copyFileSync } from "node:fs";
import { join } from "node:path";
import type { EventRecord } from "../../src/controller/events/records.ts";
import { openSqliteStore } from "../../src/controller/store/sqlite.ts";
import { sqliteMigrations } from "../../src/controller/store/schema.ts";
import { storeIn, type Store } from "../../src/controller/stores.ts";
import { openDatabase } from "../../src/host/files/database.ts";
import type { Bench } from "./bench.ts";
import { median, type Bar, type Figure } from "./figures.ts";
import { addNodes, type FleetNode } from "./fleet.ts";

const NODES = 10_000;
const WARM_UP = 2;
const ROUNDS = 7;
const EVENTS = 10_000;
const EVENTS_AT_ONCE = 100;
const PAGE = 1000;

/** The statements of some operations of the controller, as its stores run them and as prepared statements run them. */
interface Operation {
  readonly what: string;
  /** How often a round does it. */
  readonly times: number;
  readonly bar: Bar;
  readonly here: (store: Store, round: number) => Promise<void>;
  readonly bare: (sql: Database, round: number) => void;
}

type Database = ReturnType<typeof openDatabase>["sql"];

/** Measures processor time of the controller's stores on SQLite, against prepared statements of `node:sqlite` on a copy of the file. */
export const store: Bench = {
  area: "store",
  about: `statements of the controller's store, with ${NODES} nodes, against prepared statements of node:sqlite`,
  async run({ dir, say }) {
    const [path, copy] = [join(dir, "here.db"), join(dir, "bare.db")];
    say(`storing ${NODES} nodes`);
    const fleet = await addNodes(path, NODES);
    copyFileSync(path, copy);
    const here = storeIn(openSqliteStore(path));
    const { sql } = openDatabase(copy, { migrations: sqliteMigrations(), exclusive: true, onDamage: "refuse" });
    try {
      const figures: Figure[] = [];
      for (const operation of operationsOn(fleet)) {
        say(operation.what);
        figures.push(await compare(operation, here, sql));
      }
      return figures;
    } finally {
      await here.close();
      sql.close();
    }
  },
};

async function compare({ what, times, bar, here, bare }: Operation, store: Store, sql: Database): Promise<Figure> {
  const [ours, theirs]: [number[], number[]] = [[], []];
  for (let round = 0; round < WARM_UP + ROUNDS; round += 1) {
    const before = process.cpuUsage();
    await here(store, round);
    const between = process.cpuUsage(before);
    const middle = process.cpuUsage();
    bare(sql, round);
    const after = process.cpuUsage(middle);
    if (round < WARM_UP) continue;
    ours.push((between.user + between.system) / times);
    theirs.push((after.user + after.system) / times);
  }
  return {
    what,
    value: median(ours),
    unit: "CPU µs",
    peer: { name: "prepared statements", value: median(theirs) },
    ratio: median(ours.map((time, round) => time / (theirs[round] ?? Number.NaN))),
    bar,
  };
}

function operationsOn(fleet: readonly FleetNode[]): readonly Operation[] {
  const some = fleet.slice(0, 500).map(({ uid }) => uid);
  const beat = (round: number) => ({ ...HEARTBEAT, seq: round, receivedAt: 1_700_000_000_000 + round });
  return [
    {
      what: "a heartbeat",
      times: some.length,
      bar: { of: "ratio", most: 2.2 },
      async here({ nodes }, round) {
        for (const uid of some) await nodes.setHeartbeat(uid, beat(round));
      },
      bare(sql, round) {
        const set = sql.prepare("UPDATE nodes SET heartbeat = ? WHERE uid = ?");
        for (const uid of some) set.run(JSON.stringify(beat(round)), uid);
      },
    },
    {
      what: "a change of a node with its event",
      times: some.length,
      bar: { of: "ratio", most: 3 },
      async here(store, round) {
        for (const [at, uid] of some.entries()) {
          await store.transact(async (tx) => {
            const node = await tx.nodes.get(uid);
            await tx.nodes.change(uid, { tags: { ...node?.tags, round: String(round) } });
            await tx.events.add(eventOf(uid, `change-${round}-${at}`));
          });
        }
      },
      bare(sql, round) {
        const get = sql.prepare("SELECT * FROM nodes WHERE uid = ?");
        const change = sql.prepare("UPDATE nodes SET tags = ?, confirm = NULL WHERE uid = ?");
        const add = sql.prepare(ADD_EVENT);
        for (const [at, uid] of some.entries()) {
          sql.exec("BEGIN IMMEDIATE");
          parsed(get.get(uid));
          change.run(JSON.stringify({ round: String(round) }), uid);
          add.run(bound(eventOf(uid, `change-${round}-${at}`)));
          sql.exec("COMMIT");
        }
      },
    },
    {
      what: "a trigger and its outcome",
      times: some.length,
      bar: { of: "ratio", most: 2.2 },
      async here({ triggers }, round) {
        for (const [at, node] of some.entries()) {
          const id = `${round}-${at}`;
          await triggers.add({ id, node, event: "tg-ping", user: "bench" }, 1_700_000_000);
          await triggers.settle(id, "ok");
        }
      },
      bare(sql, round) {
        const add = sql.prepare("INSERT INTO triggers (id, node, event, user, sent_at) VALUES (?, ?, ?, ?, ?)");
        const settle = sql.prepare("UPDATE triggers SET outcome = ? WHERE id = ?");
        for (const [at, node] of some.entries()) {
          add.run(`${round}-${at}`, node, "tg-ping", "bench", 1_700_000_000);
          settle.run("ok", `${round}-${at}`);
        }
      },
    },
    {
      what: `an event of ${EVENTS}, ${EVENTS_AT_ONCE} in a transaction`,
      times: EVENTS,
      bar: { of: "ratio", most: 1.5 },
      async here(store, round) {
        for (let from = 0; from < EVENTS; from += EVENTS_AT_ONCE) {
          await store.transact(async ({ events }) => {
            for (let at = from; at < from + EVENTS_AT_ONCE; at += 1) await events.add(nthEvent(some, round, at));
          });
        }
      },
      bare(sql, round) {
        const add = sql.prepare(ADD_EVENT);
        for (let from = 0; from < EVENTS; from += EVENTS_AT_ONCE) {
          sql.exec("BEGIN IMMEDIATE");
          for (let at = from; at < from + EVENTS_AT_ONCE; at += 1) add.run(bound(nthEvent(some, round, at)));
          sql.exec("COMMIT");
        }
      },
    },
    {
      what: `a page of ${PAGE} events`,
      times: 1,
      bar: { of: "ratio", most: 1.5 },
      async here({ events }) {
        await events.find({ sort: { by: "timestamp", order: "desc" }, limit: PAGE, offset: 0 });
      },
      bare(sql) {
        sql.prepare("SELECT count(*) FROM events").get();
        const page = sql.prepare("SELECT * FROM events ORDER BY timestamp DESC, seq DESC LIMIT ? OFFSET 0");
        for (const row of page.all(PAGE)) parsed(row);
      },
    },
    {
      what: `a list of ${NODES} nodes`,
      times: 1,
      bar: { of: "ratio", most: 1.6 },
      async here({ nodes }) {
        const parts = new Set(["config", "heartbeat", "location", "shadow"] as const);
        for (let after: string | undefined = ""; after !== undefined;)
          after = (await nodes.page(parts, { after })).at(-1)?.fqdn;
      },
      bare(sql) {
        for (const row of sql.prepare("SELECT * FROM nodes ORDER BY fqdn").all()) parsed(row);
      },
    },
  ];
}

const HEARTBEAT = {
  at: 1_700_000_000_000,
  uptimeSeconds: 86_400,
  load: 0.5,
  memory: { totalBytes: 4e9, availableBytes: 2e9 },
  disk: { totalBytes: 4e10, freeBytes: 2e10, usedRatio: 0.5 },
  queue: { records: 0, dropped: 0 },
} as const;

const ADD_EVENT = `INSERT INTO events (uid, node_id, node_name, fqdn, domain, org, event_type, level, message, state, subject,
  timestamp, received_time, details, origin) VALUES (:uid, :nodeId, :nodeName, :fqdn, :domain, :orgId, :eventType, :level, :message,
  :state, :subject, :timestamp, :receivedTime, :details, :origin)`;

const nthEvent = (uids: readonly string[], round: number, at: number): EventRecord =>
  eventOf(uids[at % uids.length] ?? "", `event-${round}-${at}`);

function eventOf(nodeId: string, uid: string): EventRecord {
  return {
    uid,
    nodeId,
    nodeName: "node",
    fqdn: "node.bench.example",
    domain: "bench.example",
    orgId: "bench",
    eventType: "Configuration Change",
    level: "INFO",
    message: "Tag site set to here",
    timestamp: 1_700_000_000,
    receivedTime: 1_700_000_000,
    details: { user: "bench" },
    state: "UNKNOWN",
    subject: "Node",
    origin: "control-plane",
  };
}

const bound = ({ details, ...event }: EventRecord): Record<string, string | number> => ({
  ...event,
  details: JSON.stringify(details),
});

/** Parses the JSON of a row, as whoever reads it must. */
function parsed(row: Readonly<Record<string, unknown>> | undefined): void {
  for (const value of Object.values(row ?? {})) {
    if (typeof value === "string" && value.startsWith("{")) JSON.parse(value);
  }
}
