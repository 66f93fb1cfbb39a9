import type { DatabaseSync } from "node:sqlite";

/** A table, as both engines describe it. */
export interface TableShape {
  readonly name: string;
  readonly columns: readonly ColumnShape[];
  /** Indexes and keys: columns, and whether they are unique; sorted. */
  readonly indexes: readonly string[];
  /** Column, target, and what happens when it goes; sorted. */
  readonly references: readonly string[];
  /** Only of SQLite. */
  readonly options?: string;
}

interface ColumnShape {
  readonly name: string;
  readonly type: string;
  readonly isRequired: boolean;
  readonly default: string | null;
}

/** Tables that only one engine has. */
const OWN: ReadonlySet<unknown> = new Set([
  "holdfast_schema",
  "controller_lock",
  "sqlite_schema",
  "sqlite_temp_schema",
]);

/** Describes every table of a SQLite database, sorted by name. */
export function sqliteShape(sql: DatabaseSync): TableShape[] {
  const all = (text: string, ...values: string[]) => sql.prepare(text).all(...values);
  const tables = all("SELECT name, strict, wr FROM pragma_table_list WHERE type = 'table' ORDER BY name");
  return tables
    .filter(({ name }) => !OWN.has(name))
    .map((table) => {
      const name = String(table["name"]);
      const columns = all('SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)', name);
      const key = columns.filter(({ pk }) => pk !== 0).sort((a, b) => Number(a["pk"]) - Number(b["pk"]));
      const indexes = all('SELECT name, "unique" FROM pragma_index_list(?)', name).map((index) => {
        const of = all("SELECT name FROM pragma_index_info(?) ORDER BY seqno", String(index["name"]));
        return indexText(
          Boolean(index["unique"]),
          of.map((column) => String(column["name"])),
        );
      });
      return {
        name,
        columns: columns.map((column) => ({
          name: String(column["name"]),
          type: String(column["type"]).toLowerCase(),
          isRequired: column["notnull"] !== 0 || column["pk"] !== 0,
          default: column["dflt_value"] === null ? null : String(column["dflt_value"]),
        })),
        indexes: [
          ...new Set([
            ...indexes,
            indexText(
              true,
              key.map((column) => String(column["name"])),
            ),
          ]),
        ].sort(),
        references: all('SELECT "from", "table", "to", on_delete FROM pragma_foreign_key_list(?)', name)
          .map((row) => Object.values(row).join(" "))
          .sort(),
        options: `strict ${String(table["strict"])}, without rowid ${String(table["wr"])}`,
      };
    });
}

const TYPES: Readonly<Record<string, string>> = { bigint: "integer", "double precision": "real", bytea: "blob" };
const ACTIONS: Readonly<Record<string, string>> = { a: "NO ACTION", c: "CASCADE", r: "RESTRICT" };

/** Describes every table of a PostgreSQL database in the same form; `query` runs a statement in it. */
export async function postgresShape(
  query: (text: string) => Promise<readonly Record<string, unknown>[]>,
): Promise<TableShape[]> {
  const columns = await query(
    `SELECT table_name AS t, column_name AS name, data_type AS type, is_nullable AS nullable, column_default AS d, collation_name AS c
     FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name COLLATE "C", ordinal_position`,
  );
  const indexes = await query(
    `SELECT r.relname AS t, indisunique AS u, array_to_json(array(SELECT attname FROM unnest(indkey) WITH ORDINALITY AS k (n, o)
       JOIN pg_attribute ON attrelid = indrelid AND attnum = k.n ORDER BY k.o)) AS columns
     FROM pg_index JOIN pg_class r ON r.oid = indrelid JOIN pg_namespace n ON n.oid = r.relnamespace WHERE n.nspname = 'public'`,
  );
  const references = await query(
    `SELECT r.relname AS t, a.attname AS from, f.relname AS to, b.attname AS target, confdeltype AS action
     FROM pg_constraint JOIN pg_class r ON r.oid = conrelid JOIN pg_class f ON f.oid = confrelid
     JOIN pg_attribute a ON a.attrelid = conrelid AND a.attnum = conkey[1]
     JOIN pg_attribute b ON b.attrelid = confrelid AND b.attnum = confkey[1] WHERE contype = 'f'`,
  );
  const names = [...new Set(columns.map((row) => String(row["t"])))].filter((name) => !OWN.has(name));
  const of = (rows: readonly Record<string, unknown>[], name: string) => rows.filter((row) => row["t"] === name);
  return names.map((name) => ({
    name,
    columns: of(columns, name).map((row) => ({
      name: String(row["name"]),
      type: typeText(row),
      isRequired: row["nullable"] === "NO",
      default: typeof row["d"] === "string" ? row["d"].replace(/::\w+$/, "") : null,
    })),
    indexes: of(indexes, name)
      .map((row) => indexText(row["u"] === true, Array.isArray(row["columns"]) ? row["columns"].map(String) : []))
      .sort(),
    references: of(references, name)
      .map(
        (row) =>
          `${String(row["from"])} ${String(row["to"])} ${String(row["target"])} ${ACTIONS[String(row["action"])]}`,
      )
      .sort(),
  }));
}

/** A text must sort byte by byte. */
function typeText(row: Record<string, unknown>): string {
  const type = String(row["type"]);
  return type === "text" && row["c"] !== "C" ? "text in another order" : (TYPES[type] ?? type);
}

const indexText = (isUnique: boolean, columns: readonly string[]): string =>
  `${isUnique ? "unique " : ""}${columns.join(", ")}`;
