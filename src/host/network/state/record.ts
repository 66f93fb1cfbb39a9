import { z } from "zod";
import type { Files } from "../../files/files.ts";
import { reportingDamage, type OnDamage } from "../../files/damage.ts";
import { stateFile, valueOf, type StateFile } from "../../files/state-file.ts";

/** Original settings of adjusted objects, and other data that must survive a restart of the agent. */
export const NetworkRecord = z.object({
  links: z.record(z.string(), z.object({ mtu: z.number(), isUp: z.boolean() })),
  sysctls: z.record(z.string(), z.string()),
  /** The table of each VRF, by name. */
  vrfs: z.record(z.string(), z.number()),
  /** The loaded firewall text and the previous one, by digest. */
  firewalls: z.array(z.object({ digest: z.string(), text: z.string() })),
  /** The WAN interface, so that a changed default route does not select another one. */
  wan: z.exactOptional(z.string()),
});
export type NetworkRecord = z.infer<typeof NetworkRecord>;

/** The record of a machine without adjustments. */
export const EMPTY_RECORD: NetworkRecord = { links: {}, sysctls: {}, vrfs: {}, firewalls: [] };

/** Reports whether nothing was ever adjusted. */
export function isEmptyRecord({ links, sysctls, vrfs, firewalls }: NetworkRecord): boolean {
  return [links, sysctls, vrfs, firewalls].every((part) => Object.keys(part).length === 0);
}

/** Storage of a record. */
export interface RecordStore {
  load(): Promise<NetworkRecord>;
  save(record: NetworkRecord): Promise<void>;
}

/** Returns the record's file, `STATE/network-record.json`. */
export function networkRecordFile(files: Files, stateDir: string, onDamage?: OnDamage): StateFile<NetworkRecord> {
  const name = "network-record.json";
  const options = { path: `${stateDir}/${name}`, schema: NetworkRecord, keepsPrevious: true };
  return reportingDamage(stateFile(files, options), name, onDamage);
}

/** Returns the store of the network record, which is read once. */
export function networkRecord(files: Files, stateDir: string, onDamage?: OnDamage): RecordStore {
  const file = networkRecordFile(files, stateDir, onDamage);
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
