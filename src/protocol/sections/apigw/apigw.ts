import type { z } from "zod";
import { Fqdn, type JsonObject } from "../../values/values.ts";
import { closed, FlagOrUnset, Ipv4OrName, isSet, ItemPort, numberOrUnset, textOrUnset } from "../common/fields.ts";
import { isObject } from "../common/forms.ts";

/** The section `apigw` of a node or of a cluster: its endpoints for remote access, as strict as the API is. */
export const ApigwSection: z.ZodType<JsonObject> = closed({
  enabled: FlagOrUnset.meta({ description: "Run the HTTPS endpoint; false by default" }),
  host: textOrUnset(Ipv4OrName).meta({
    description: "Public name of the node, or of the load balancer in front of it",
  }),
  port: numberOrUnset(ItemPort).meta({ description: "TCP port; other than 443 only behind a load balancer" }),
  cert: textOrUnset(Fqdn).meta({ description: "FQDN of an uploaded certificate; stored without effect" }),
  wireguardEnabled: FlagOrUnset.meta({ description: "Run the WireGuard endpoint; false by default" }),
  wireguardEndpoint: textOrUnset(Ipv4OrName).meta({ description: "What clients dial: IPv4 address or DNS name" }),
  wireguardPort: numberOrUnset(ItemPort).meta({ description: "UDP port; 51820 is customary" }),
}).superRefine(
  (section: JsonObject, context) => {
    for (const [flag, ...fields] of ENDPOINTS) {
      if (section[flag] !== true) continue;
      for (const field of fields) {
        if (!isSet(section[field]))
          context.addIssue({ code: "custom", path: [field], message: `is required with ${flag}` });
      }
    }
  },
  { when: ({ value }) => isObject(value) },
);

/** The flag of each endpoint, and what it needs. */
const ENDPOINTS = [
  ["enabled", "host", "port"],
  ["wireguardEnabled", "wireguardEndpoint", "wireguardPort"],
] as const;
