import { sql, type Generated, type Selectable } from "kysely";
import type { ContainerOutput } from "../../protocol/documents/telemetry.ts";
import { storable } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import type { Uncounted } from "../store/trimmer.ts";
import { OUTPUT_SECONDS } from "./kept-output.ts";
import type { ContainerOutputSearch } from "./records.ts";

/** Output of containers with `saveOutput`: 30 days, and at most 64 MB of text per node and 2 GB in total. */
export interface ContainerOutputStore extends ContainerOutputSearch {
  /** Stores records of a node, and drops its oldest beyond its limit. */
  add(node: string, records: readonly ContainerOutput[]): Promise<void>;
  prune(nowSeconds: number): Promise<void>;
}

const MAX_CHARS_PER_NODE = 64_000_000;
const CHARS = 2_000_000_000;
/** Characters by which a node may exceed its limit before its oldest are dropped in bulk. */
const SLACK = 1_000_000;

type OutputTables = {
  readonly container_output: {
    readonly seq: Generated<number>;
    readonly node: string;
    readonly container: string;
    readonly name: string;
    readonly run: string;
    readonly stream: string;
    readonly at: number;
    readonly text: string;
    readonly chars: number;
  };
};
type OutputRow = Selectable<OutputTables["container_output"]>;

const ADD = statement<Omit<OutputRow, "seq">>()((db, value) =>
  db
    .$extendTables<OutputTables>()
    .insertInto("container_output")
    .values({
      node: value("node"),
      container: value("container"),
      name: value("name"),
      run: value("run"),
      stream: value("stream"),
      at: value("at"),
      text: value("text"),
      chars: value("chars"),
    }),
);

export function containerOutputStore(executor: Executor, uncounted: Uncounted): ContainerOutputStore {
  const db = executor.$extendTables<OutputTables>();
  /** Drops the oldest rows, of one node or of all, until the rest has at most `most` characters. */
  const drop = async (most: number, node?: string): Promise<void> => {
    const where = node === undefined ? sql`` : sql`where node = ${node}`;
    const { rows } = await sql<{ readonly chars: number | null }>`
      select sum(chars) as chars from container_output ${where}`.execute(db);
    const over = (rows[0]?.chars ?? 0) - most;
    if (over <= 0) return;
    await sql`delete from container_output where seq in (select seq from (
      select seq, sum(chars) over (order by seq) - chars as earlier from container_output ${where}
    ) as summed where earlier < ${over})`.execute(db);
  };
  return {
    async add(node, records) {
      let added = 0;
      for (const { container, name, run, stream, at, text } of records) {
        const by = { container: storable(container), name: storable(name), run: storable(run) };
        await ADD(executor, { node, ...by, stream, at, text: storable(text), chars: text.length });
        added += text.length;
      }
      if (uncounted.isDue(`container_output ${node}`, added, SLACK)) await drop(MAX_CHARS_PER_NODE, node);
    },
    async find(node, { container, from, to, limit }) {
      const ofNode = db
        .selectFrom("container_output")
        .selectAll()
        .where("node", "=", node)
        .where("at", ">=", Math.ceil(from * 1000))
        .where("at", "<=", Math.floor(to * 1000 + 999));
      const found =
        container === undefined
          ? ofNode
          : ofNode.where((eb) => eb.or([eb("container", "=", container), eb("name", "=", container)]));
      const rows = await found.orderBy("at", "desc").orderBy("seq", "desc").limit(limit).execute();
      return rows.reverse().map(read);
    },
    async prune(nowSeconds) {
      await db
        .deleteFrom("container_output")
        .where("at", "<", Math.floor((nowSeconds - OUTPUT_SECONDS) * 1000))
        .execute();
      await drop(CHARS);
    },
  };
}

function read({ container, name, run, stream, at, text }: OutputRow): ContainerOutput {
  return { container, name, run, stream: stream === "stderr" ? "stderr" : "stdout", at, text };
}
