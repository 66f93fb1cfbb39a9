import { z } from "zod";
import { MeshPath } from "./mesh.ts";
import { Base64Url32, IpAddress, Text253, Text256, Text512 } from "../values/values.ts";

/** Targets that a node must reach, for connectivity checks. */
export const NetworkTargets = z.object({
  schema: z.literal(1),
  /** Absent until the node is registered. `pins` are the key hashes trusted regardless of the certificate's fields (RFC 7469 §2.4). */
  controlPlane: z.object({ url: Text512, session: Text512, pins: z.array(Base64Url32).max(8) }).optional(),
  /** With the password that it may have: this is for root. */
  proxy: z.object({ url: Text512, noProxy: z.array(Text256).max(256) }).optional(),
  /** Addresses that are set by hand, by the name that they are for. */
  hosts: z.record(Text253, z.array(IpAddress).max(8)).optional(),
  /** Target by the gateway's FQDN, or its uid if it has no name; `key` is the RFC 7638 thumbprint that proves it. */
  paths: z.array(MeshPath.extend({ name: Text253, key: Base64Url32.optional() })).max(1024),
});
export type NetworkTargets = z.infer<typeof NetworkTargets>;
