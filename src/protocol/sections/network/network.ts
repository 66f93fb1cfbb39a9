import { z } from "zod";
import type { JsonObject } from "../../values/values.ts";
import { says } from "../common/fields.ts";
import { clusterFields, Flag, list, Network, NETWORK_LIMITS, ownFields, sharedFields } from "./fields.ts";
import { NetworkReader } from "./reader.ts";
import { routingLists, VrfItem } from "./routing-fields.ts";
import { TunnelItem } from "./tunnel-fields.ts";
import { isPresent } from "../common/forms.ts";
import { networkOf } from "./read.ts";

const InterfaceItem = z.looseObject({ ...sharedFields, ...ownFields, ...clusterFields }, says("must be an object"));

const ClusterInterfaceItem = z
  .looseObject({ ...sharedFields, ...clusterFields }, says("must be an object"))
  .superRefine((entry: JsonObject, context) => {
    for (const field of Object.keys(ownFields)) {
      if (!isPresent(entry[field])) continue;
      context.addIssue({ code: "custom", path: [field], message: "is always a member's own, not for a cluster" });
    }
  });

const shared = {
  tunnels: list(TunnelItem, NETWORK_LIMITS.tunnels),
  vrfs: list(VrfItem, NETWORK_LIMITS.vrfs),
  ...routingLists,
  forwarding: Flag.optional().meta({ description: "Route packets between interfaces; false by default" }),
  darkMode: Flag.optional().meta({ description: "Answer nothing that was not asked for; false by default" }),
} as const;

/** The section `network` of a node, as strict as the API is; unknown fields are kept. */
export const NetworkSection: z.ZodType<JsonObject> = z
  .looseObject(
    {
      interfaces: list(InterfaceItem, NETWORK_LIMITS.interfaces),
      ...shared,
      bridgeCIDR: Network.optional().meta({ description: "The network of the containers; 172.18.0.0/16 by default" }),
    },
    says("must be an object"),
  )
  .superRefine((section: JsonObject, context) => refuseConflicts(section, false, context));

/** The section `network` of a cluster: what its members share. */
export const ClusterNetworkSection: z.ZodType<JsonObject> = z
  .looseObject(
    { interfaces: list(ClusterInterfaceItem, NETWORK_LIMITS.interfaces), ...shared },
    says("must be an object"),
  )
  .superRefine((section: JsonObject, context) => {
    refuseConflicts(section, true, context);
    if (!isPresent(section["bridgeCIDR"])) return;
    context.addIssue({ code: "custom", path: ["bridgeCIDR"], message: "is always a member's own, not for a cluster" });
  });

function refuseConflicts(section: JsonObject, isCluster: boolean, context: z.RefinementCtx): void {
  const reader = new NetworkReader();
  networkOf(reader, section, { nodeType: "Node", isMember: isCluster });
  for (const { path, message } of reader.conflicts) {
    context.addIssue({
      code: "custom",
      path: path.split(".").slice(1),
      message: message.slice(path.length + ": ".length),
    });
  }
}
