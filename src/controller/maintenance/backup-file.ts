import { createHash } from "node:crypto";
import { z } from "zod";
import { HostError, InputError, toError } from "../../errors.ts";
import { readGzipped, writeGzipped } from "../../host/files/archive.ts";
import { linesOf } from "../../lib/text/lines.ts";
import type { StoredRow } from "../store/tables.ts";

/** First line of a backup. */
export const BackupHeader = z.object({
  format: z.literal("holdfast-controller-backup"),
  version: z.literal(1),
  /** Version of the store's schema. */
  schema: z.int().min(1),
  engine: z.enum(["sqlite", "postgres"]),
  /** Version of the program that wrote it. */
  program: z.string(),
  /** RFC 3339. */
  createdAt: z.string(),
});
export type BackupHeader = z.infer<typeof BackupHeader>;

/** A file of the data directory, or rows of a table. */
export type BackupPart =
  | { readonly kind: "file"; readonly name: string; readonly text: string }
  | { readonly kind: "rows"; readonly table: string; readonly rows: readonly StoredRow[] };

/** Limit of a line: a page of rows, or a single one. */
const MAX_LINE_BYTES = 256 * 1024 * 1024;

const Bytes = z.object({ base64: z.base64() });
const Line = z.union([
  z.strictObject({ file: z.string(), text: z.string() }),
  z.strictObject({ table: z.string(), columns: z.array(z.string()), rows: z.array(z.array(z.unknown())) }),
  z.strictObject({ end: z.object({ sha256: z.string() }) }),
]);
/** Members of the first line in every version of the format. */
const AnyHeader = z.object({ format: z.literal("holdfast-controller-backup"), version: z.int() });

/**
 * Writes a backup: gzipped lines of JSON, the last of which has the SHA-256 of all before it. The file appears once it is complete.
 * @throws as `writeGzipped`
 */
export function writeBackup(
  path: string,
  header: BackupHeader,
  parts: AsyncIterable<BackupPart>,
  signal: AbortSignal,
): Promise<number> {
  return writeGzipped(path, linesFor(header, parts), signal);
}

async function* linesFor(header: BackupHeader, parts: AsyncIterable<BackupPart>): AsyncGenerator<Buffer> {
  const hash = createHash("sha256");
  const line = (value: unknown): Buffer => {
    const bytes = Buffer.from(`${JSON.stringify(value)}\n`);
    hash.update(bytes);
    return bytes;
  };
  yield line(header);
  for await (const part of parts) yield line(part.kind === "file" ? fileLine(part) : rowsLine(part));
  yield line({ end: { sha256: hash.copy().digest("hex") } });
}

const fileLine = ({ name, text }: Extract<BackupPart, { kind: "file" }>) => ({ file: name, text });

function rowsLine({ table, rows }: Extract<BackupPart, { kind: "rows" }>) {
  const columns = Object.keys(rows[0] ?? {});
  const written = (value: StoredRow[string] | undefined) =>
    value instanceof Uint8Array ? { base64: Buffer.from(value).toString("base64") } : (value ?? null);
  return { table, columns, rows: rows.map((row) => columns.map((column) => written(row[column]))) };
}

/** A backup that is being read. */
export interface OpenBackup {
  readonly header: BackupHeader;
  /** Returns the parts, once. The last one is followed by the check of the whole, so nothing may be done with them before the end. */
  parts(): AsyncGenerator<BackupPart, void>;
}

/**
 * Opens a backup and reads its header.
 * @throws {InputError} `not-a-backup`, `backup-too-new` or `backup-damaged`; {HostError} `file-failed`
 */
export async function openBackup(path: string): Promise<OpenBackup> {
  const lines = linesOf(readGzipped(path), MAX_LINE_BYTES);
  const hash = createHash("sha256");
  const next = async (): Promise<{ readonly text: string; readonly before: string } | undefined> => {
    try {
      const { done, value } = await lines.next();
      if (done === true) return undefined;
      const before = hash.copy().digest("hex");
      hash.update(value).update("\n");
      return { text: Buffer.from(value).toString("utf8"), before };
    } catch (error) {
      if (error instanceof InputError && error.code === "not-gzip") throw foreign(path, error);
      if (error instanceof HostError) throw error;
      // The error of the archive repeats the path; its cause names the reason alone.
      const reason = toError(error);
      throw damaged(path, toError(reason.cause ?? reason).message, error);
    }
  };
  const header = readHeader(path, (await next())?.text ?? "");
  return {
    header,
    async *parts() {
      for (let line = await next(); line !== undefined; line = await next()) {
        const part = readLine(path, line.text);
        if ("end" in part) {
          if (part.end.sha256 !== line.before) throw damaged(path, "its checksum does not match");
          if ((await next()) !== undefined) throw damaged(path, "data follows its end");
          return;
        }
        yield "file" in part
          ? { kind: "file", name: part.file, text: part.text }
          : { kind: "rows", table: part.table, rows: part.rows.map((row) => rowOf(part.columns, row)) };
      }
      throw damaged(path, "its end is missing");
    },
  };
}

const rowOf = (columns: readonly string[], row: readonly unknown[]): StoredRow =>
  Object.fromEntries(columns.map((column, at) => [column, valueOf(row[at])]));

/** Parses a value; the frequent ones without a schema, since there are millions. */
function valueOf(value: unknown): StoredRow[string] {
  if (typeof value === "string" || typeof value === "number" || value === null) return value;
  const bytes = Bytes.safeParse(value);
  if (!bytes.success) throw new Error("a value of a row is no text, number, null or bytes");
  return new Uint8Array(Buffer.from(bytes.data.base64, "base64"));
}

function readHeader(path: string, text: string): BackupHeader {
  const value = parsed(text);
  const any = AnyHeader.safeParse(value);
  if (!any.success) throw foreign(path);
  if (any.data.version > 1) {
    const message = `${path} has version ${any.data.version} of the format, and this program knows 1; use the program that wrote it`;
    throw new InputError("backup-too-new", message);
  }
  const header = BackupHeader.safeParse(value);
  if (!header.success) throw damaged(path, "its first line is wrong");
  return header.data;
}

function readLine(path: string, text: string): z.infer<typeof Line> {
  const line = Line.safeParse(parsed(text));
  if (!line.success) throw damaged(path, "a line is wrong");
  return line.data;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function damaged(path: string, why: string, cause?: unknown): InputError {
  return new InputError(
    "backup-damaged",
    `${path} is truncated or damaged (${why}); nothing was changed, use another backup`,
    {
      cause,
    },
  );
}

function foreign(path: string, cause?: unknown): InputError {
  return new InputError("not-a-backup", `${path} is not a backup of a controller; nothing was changed`, { cause });
}
