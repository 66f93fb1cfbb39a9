import { plainLine, safeJson } from "../../../lib/text/terminal-text.ts";
import { DataStoreListing, type DataStoreEntry } from "../../../protocol/triggers/data-store.ts";
import { askDataStore } from "./calls.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import { tableText } from "../../text/table.ts";
import type { Call } from "../../frame/verb.ts";
import type { Paint } from "../../frame/terminal.ts";
import { defined } from "../../../lib/defined.ts";

const TRUNCATED = "… there is more";

/** Shows the data store, or what is below one path of it, as a tree. */
export async function dataStoreList(call: Call, path: string | undefined): Promise<ExitClass> {
  const { terminal, settings } = call;
  const body = { action: "LIST", ...defined({ filename: path }) };
  const listing = await askDataStore(call, body, DataStoreListing);
  terminal.out(
    settings.isJson ? `${safeJson(listing)}\n` : listText(listing, (style, text) => terminal.style(style, text)),
  );
  return "ok";
}

/** Formats the tree with sizes, a line for each entry, and a hint if entries are omitted. Pure. */
function listText({ files }: DataStoreListing, paint: Paint): string {
  const rows = [...rowsOf(files, 0, paint)];
  if (rows.length === 0) return "it is empty\n";
  const width = Math.max(...rows.map(([size]) => size.length));
  const lines = rows.map(([size, name]) => [size.padStart(width), name]);
  const isWhole = !rows.some(([, name]) => name.endsWith(TRUNCATED));
  const hint = isWhole ? "" : "not everything is shown: name a directory to see what is below it\n";
  return `${tableText(["SIZE".padStart(width), "NAME"], lines, paint)}${hint}`;
}

function* rowsOf(
  entries: readonly DataStoreEntry[],
  depth: number,
  paint: Paint,
): Generator<readonly [size: string, name: string]> {
  const indent = "  ".repeat(depth);
  for (const { name, type, size, files } of entries) {
    if (type === "truncated") {
      yield ["", indent + TRUNCATED];
      continue;
    }
    const shown = plainLine(name);
    yield [plainLine(size), indent + (type === "directory" ? paint("bold", `${shown}/`) : shown)];
    yield* rowsOf(files ?? [], depth + 1, paint);
  }
}
