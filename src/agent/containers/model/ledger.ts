import type { DatabaseSync, SQLOutputValue, StatementSync } from "node:sqlite";
import { transaction } from "../../../host/files/database.ts";

/** Migration that creates the ledger. */
export const computeMigration = `
CREATE TABLE compute_containers (
  nonce TEXT PRIMARY KEY,
  definition TEXT NOT NULL,
  engine_id TEXT UNIQUE,
  hash TEXT NOT NULL,
  limits TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  replaces TEXT
) STRICT;
CREATE INDEX compute_containers_definition ON compute_containers (definition);
CREATE TABLE compute_definitions (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  first_seen_ms INTEGER NOT NULL,
  first_version TEXT NOT NULL,
  address TEXT,
  by_hand TEXT,
  schedule TEXT,
  next_run_ms INTEGER,
  last_run_ms INTEGER
) STRICT;
CREATE TABLE compute_volumes (
  name TEXT PRIMARY KEY,
  detail TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  quarantined_ms INTEGER
) STRICT;
CREATE TABLE compute_images (
  id TEXT PRIMARY KEY,
  reference TEXT NOT NULL,
  used_ms INTEGER NOT NULL
) STRICT;
`;

/** Migration that extends the ledger. */
export const computeColumnsMigration = `
ALTER TABLE compute_containers ADD COLUMN privileges TEXT;
ALTER TABLE compute_definitions ADD COLUMN refused TEXT;
`;

/** A container that was created, or was about to be; only these are ours. Times in Unix milliseconds. */
export interface ContainerRow {
  /** Unique value, also a label of the container; stored before the container is created. */
  readonly nonce: string;
  readonly definition: string;
  /** Id at the engine; undefined until the engine has answered. */
  readonly engineId: string | undefined;
  /** Hash of the definition, live changes included. */
  readonly hash: string;
  /** Hash of the last applied limits. */
  readonly limits: string;
  readonly createdAt: number;
  /** Nonce of the predecessor, which is restarted if this container cannot start. */
  readonly replaces: string | undefined;
  /** Granted privileges, as `privilegesText` writes them; undefined if not recorded. */
  readonly privileges: string | undefined;
}

export interface DefinitionRow {
  readonly id: string;
  readonly name: string;
  readonly firstSeen: number;
  /** Versions of the documents that contained it first. */
  readonly firstVersion: string;
  /** Address on the container network. */
  readonly address: string | undefined;
  /** Hash of the definition that was stopped by hand. */
  readonly byHand: string | undefined;
  readonly schedule: string | undefined;
  readonly nextRun: number | undefined;
  readonly lastRun: number | undefined;
  /** A successor that could not start, as JSON of `Refusal`. */
  readonly refused: string | undefined;
}

export interface VolumeRow {
  readonly name: string;
  /** Record of the volume, as JSON. */
  readonly detail: string;
  readonly createdAt: number;
  readonly quarantinedAt: number | undefined;
}

/** An image pulled for a definition. */
export interface ImageRow {
  readonly id: string;
  readonly reference: string;
  /** Time of the last container created from it. */
  readonly usedAt: number;
}

/** Records which objects of the engine are ours, and facts about definitions that outlive the agent. Throws SQLite's errors. */
export class Ledger {
  readonly #sql: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #containers: Map<string, ContainerRow> | undefined;
  #definitions: Map<string, DefinitionRow> | undefined;
  #volumes: Map<string, VolumeRow> | undefined;
  #images: Map<string, ImageRow> | undefined;

  constructor(sql: DatabaseSync) {
    this.#sql = sql;
  }

  /** By nonce. */
  get containers(): ReadonlyMap<string, ContainerRow> {
    return this.#containerRows();
  }

  /** By id. */
  get definitions(): ReadonlyMap<string, DefinitionRow> {
    return this.#definitionRows();
  }

  /** By name. */
  get volumes(): ReadonlyMap<string, VolumeRow> {
    return this.#volumeRows();
  }

  /** By id. */
  get images(): ReadonlyMap<string, ImageRow> {
    return this.#imageRows();
  }

  /** Reports whether the ledger is empty. */
  get isEmpty(): boolean {
    return this.containers.size === 0 && this.definitions.size === 0 && this.volumes.size === 0;
  }

  /** Returns the row of a container by its id at the engine; undefined if there is none. */
  containerOf(engineId: string | undefined): ContainerRow | undefined {
    // A container that the engine may still be creating has no id yet.
    return engineId === undefined ? undefined : [...this.containers.values()].find((row) => row.engineId === engineId);
  }

  putContainer(row: ContainerRow): void {
    const rows = this.#containerRows();
    if (isSame(rows.get(row.nonce), row)) return;
    this.#run(
      "INSERT OR REPLACE INTO compute_containers (nonce, definition, engine_id, hash, limits, created_ms, replaces, privileges) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      row.nonce,
      row.definition,
      row.engineId ?? null,
      row.hash,
      row.limits,
      row.createdAt,
      row.replaces ?? null,
      row.privileges ?? null,
    );
    rows.set(row.nonce, row);
  }

  dropContainer(nonce: string): void {
    const rows = this.#containerRows();
    if (!rows.has(nonce)) return;
    this.#run("DELETE FROM compute_containers WHERE nonce=?", nonce);
    rows.delete(nonce);
  }

  putDefinition(row: DefinitionRow): void {
    const rows = this.#definitionRows();
    if (isSame(rows.get(row.id), row)) return;
    this.#run(
      "INSERT OR REPLACE INTO compute_definitions (id, name, first_seen_ms, first_version, address, by_hand, schedule, next_run_ms, last_run_ms, refused) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      row.id,
      row.name,
      row.firstSeen,
      row.firstVersion,
      row.address ?? null,
      row.byHand ?? null,
      row.schedule ?? null,
      row.nextRun ?? null,
      row.lastRun ?? null,
      row.refused ?? null,
    );
    rows.set(row.id, row);
  }

  /** Updates fields of a definition; does nothing if it is unknown. */
  changeDefinition(id: string, change: Partial<DefinitionRow>): void {
    const row = this.#definitionRows().get(id);
    if (row !== undefined) this.putDefinition({ ...row, ...change, id });
  }

  /** Deletes a definition and its containers. */
  dropDefinition(id: string): void {
    const rows = this.#definitionRows();
    const own = [...this.#containerRows().values()].filter(({ definition }) => definition === id);
    if (!rows.has(id) && own.length === 0) return;
    transaction(this.#sql, () => {
      this.#run("DELETE FROM compute_containers WHERE definition=?", id);
      this.#run("DELETE FROM compute_definitions WHERE id=?", id);
    });
    rows.delete(id);
    for (const { nonce } of own) this.#containerRows().delete(nonce);
  }

  putVolume(row: VolumeRow): void {
    const rows = this.#volumeRows();
    if (isSame(rows.get(row.name), row)) return;
    this.#run(
      "INSERT OR REPLACE INTO compute_volumes (name, detail, created_ms, quarantined_ms) VALUES (?, ?, ?, ?)",
      row.name,
      row.detail,
      row.createdAt,
      row.quarantinedAt ?? null,
    );
    rows.set(row.name, row);
  }

  dropVolume(name: string): void {
    const rows = this.#volumeRows();
    if (!rows.has(name)) return;
    this.#run("DELETE FROM compute_volumes WHERE name=?", name);
    rows.delete(name);
  }

  putImage(row: ImageRow): void {
    const rows = this.#imageRows();
    if (isSame(rows.get(row.id), row)) return;
    this.#run(
      "INSERT OR REPLACE INTO compute_images (id, reference, used_ms) VALUES (?, ?, ?)",
      row.id,
      row.reference,
      row.usedAt,
    );
    rows.set(row.id, row);
  }

  dropImage(id: string): void {
    const rows = this.#imageRows();
    if (!rows.has(id)) return;
    this.#run("DELETE FROM compute_images WHERE id=?", id);
    rows.delete(id);
  }

  #imageRows(): Map<string, ImageRow> {
    this.#images ??= this.#read("SELECT * FROM compute_images", (row) => [
      String(row["id"]),
      { id: String(row["id"]), reference: String(row["reference"]), usedAt: Number(row["used_ms"]) },
    ]);
    return this.#images;
  }

  #containerRows(): Map<string, ContainerRow> {
    this.#containers ??= this.#read("SELECT * FROM compute_containers", (row) => [
      String(row["nonce"]),
      {
        nonce: String(row["nonce"]),
        definition: String(row["definition"]),
        engineId: text(row["engine_id"]),
        hash: String(row["hash"]),
        limits: String(row["limits"]),
        createdAt: Number(row["created_ms"]),
        replaces: text(row["replaces"]),
        privileges: text(row["privileges"]),
      },
    ]);
    return this.#containers;
  }

  #definitionRows(): Map<string, DefinitionRow> {
    this.#definitions ??= this.#read("SELECT * FROM compute_definitions", (row) => [
      String(row["id"]),
      {
        id: String(row["id"]),
        name: String(row["name"]),
        firstSeen: Number(row["first_seen_ms"]),
        firstVersion: String(row["first_version"]),
        address: text(row["address"]),
        byHand: text(row["by_hand"]),
        schedule: text(row["schedule"]),
        nextRun: number(row["next_run_ms"]),
        lastRun: number(row["last_run_ms"]),
        refused: text(row["refused"]),
      },
    ]);
    return this.#definitions;
  }

  #volumeRows(): Map<string, VolumeRow> {
    this.#volumes ??= this.#read("SELECT * FROM compute_volumes", (row) => [
      String(row["name"]),
      {
        name: String(row["name"]),
        detail: String(row["detail"]),
        createdAt: Number(row["created_ms"]),
        quarantinedAt: number(row["quarantined_ms"]),
      },
    ]);
    return this.#volumes;
  }

  #read<T>(query: string, entryOf: (row: Record<string, SQLOutputValue>) => readonly [string, T]): Map<string, T> {
    return new Map(this.#prepare(query).all().map(entryOf));
  }

  #run(query: string, ...values: readonly (string | number | null)[]): void {
    this.#prepare(query).run(...values);
  }

  /** Prepared on first use: nodes without containers need none. */
  #prepare(query: string): StatementSync {
    const known = this.#statements.get(query);
    if (known !== undefined) return known;
    const statement = this.#sql.prepare(query);
    this.#statements.set(query, statement);
    return statement;
  }
}

function isSame<T extends object>(one: T | undefined, other: T): boolean {
  if (one === undefined) return false;
  const known = new Map<string, unknown>(Object.entries(one));
  return Object.entries(other).every(([key, value]) => known.get(key) === value);
}

function text(value: SQLOutputValue | undefined): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function number(value: SQLOutputValue | undefined): number | undefined {
  return typeof value === "number" ? value : undefined;
}
