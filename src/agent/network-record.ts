import type { Files } from "../host/files.ts";
import { stateFile, valueOf } from "../host/state-file.ts";
import { EMPTY_RECORD, isEmptyRecord, NetworkRecord } from "./sections/network/actual.ts";
import type { NetworkOptions } from "./sections/network/section.ts";

/** What was noted of the network as it was, in `STATE/network-record.json`; read once. */
export function networkRecord(files: Files, stateDir: string): NetworkOptions["record"] {
  const path = `${stateDir}/network-record.json`;
  const file = stateFile(files, { path, schema: NetworkRecord, keepsPrevious: true });
  let known: NetworkRecord | undefined;
  return {
    async load() {
      known ??= valueOf(await file.load()) ?? EMPTY_RECORD;
      return known;
    },
    async save(record) {
      if (isEmptyRecord(record)) await file.remove();
      else await file.save(record);
      known = record;
    },
  };
}
