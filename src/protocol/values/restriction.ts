import { z } from "zod";
import { Text64 } from "./values.ts";

/** The code of a node that connects from an address its lock does not cover. */
export const UNAUTHORIZED_IP = "unauthorized-ip";

/** Reason why a control plane holds a node INACTIVE, and the address that the node connects from. */
export const Restriction = z.object({ code: Text64, address: Text64 });
export type Restriction = z.infer<typeof Restriction>;

/** Says why a node is held INACTIVE. */
export function restrictionText({ code, address }: Restriction): string {
  if (code !== UNAUTHORIZED_IP) return `the control plane holds this node INACTIVE (${code})`;
  return `this node connects from ${address}, and the control plane has locked it to other addresses: it is held INACTIVE`;
}
