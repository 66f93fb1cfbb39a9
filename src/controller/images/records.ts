import { z } from "zod";
import { StorePath } from "../../protocol/triggers/data-store.ts";

/** Record of a virtual machine's volume: a disk, or a CD-ROM whose ISO file is in the node's data store. */
export const MachineVolume = z
  .object({
    name: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, "must be letters, digits, '.', '_' and '-', at most 128"),
    deviceType: z.enum(["disk", "cdrom"]),
    deviceBus: z.enum(["ide", "scsi", "virtio", "sata"]).optional(),
    size: z.int().min(0).optional().meta({ description: "Bytes, of disks" }),
    provisionType: z.enum(["thin", "lazy", "eager"]).optional(),
    path: z
      .union([StorePath, z.literal("")])
      .optional()
      .meta({ description: "ISO file in the data store, of CD-ROMs" }),
    encrypted: z.boolean().optional(),
  })
  .meta({ id: "MachineVolume" });
export type MachineVolume = z.infer<typeof MachineVolume>;

/** Record of a virtual machine's image; `location` is a path in the node's data store. */
export interface ImageRecord {
  readonly id: string;
  readonly displayName: string;
  readonly description?: string | undefined;
  readonly location: string;
  readonly os: string;
}

/** Records of virtual machines' images; deleted with their node. */
export interface ImageRecords {
  /** Sorted by name, then by id. */
  ofNode(node: string): Promise<readonly ImageRecord[]>;
  get(node: string, id: string): Promise<ImageRecord | undefined>;
  /** Adds a record, or replaces the one with this id. */
  put(node: string, record: ImageRecord): Promise<void>;
  remove(node: string, id: string): Promise<void>;
}
