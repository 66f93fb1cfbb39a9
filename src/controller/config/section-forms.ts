import type { z } from "zod";
import { sectionNames, sectionSchemas, type SectionName } from "../../protocol/sections/sections.ts";
import { ClusterNetworkSection } from "../../protocol/sections/network/network.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { sectionComponent } from "../http/shapes.ts";

const ID = "2f6d1c3b-8e7a-4d5c-9b0a-1e2f3a4b5c6d";
const connector = { enabled: true, node: "local", service: "web", protocol: "tcp", port: 8081, nic: "any" };
const service = {
  enabled: true,
  name: "web",
  protocol: "tcp",
  host: "192.0.2.10",
  port: 80,
  description: "Web server",
};

/** Examples of an item of each section that has items, without its id. */
export const itemExamples = { connectors: connector, services: service } as const;

const examples: Readonly<Partial<Record<SectionName, JsonObject>>> = {
  connectors: { enabled: true, version: 2, items: { [ID]: { ...connector, id: ID, index: 0 } } },
  services: { enabled: true, version: 2, items: { [ID]: { ...service, id: ID, index: 0 } } },
  gateway: { enabled: true, type: "public", host: "gw.example.net", port: 8443 },
  alert: {
    enabled: true,
    thresholds: [
      {
        id: "cpu-high",
        name: "CPU above 90 %",
        telemetry: "cpu",
        max: 90,
        exceededWindow: 5,
        exceededWindowUnit: "minutes",
      },
    ],
  },
  cluster: { enabled: true, host: "10.1.0.2", port: 9000 },
  snmp: {
    enabled: true,
    interface: "ens3",
    username: "monitor",
    authProtocol: "SHA",
    authPassphrase: "an-example-1",
    privacyProtocol: "AES128",
    privacyPassphrase: "an-example-2",
  },
  apigw: { enabled: true, host: "apps.example.net", port: 443 },
  network: {
    interfaces: [
      { nic: "ens3", dhcp: true },
      { nic: "ens4", ip: "10.1.0.1/24", mtu: 1500, routes: [{ route: "10.2.0.0/16", next: "10.1.0.254" }] },
    ],
  },
};

const forms: ReadonlyMap<SectionName, z.ZodType<JsonObject>> = new Map(
  sectionNames.map((name) => {
    const example = examples[name];
    const meta = { id: sectionComponent(name), ...(example === undefined ? {} : { examples: [example] }) };
    return [name, (sectionSchemas[name] ?? JsonObject).meta(meta)];
  }),
);

/** Returns a section as the OpenAPI document shows it: a component such as `NetworkSection`, with an example. */
export const sectionForm = (name: SectionName): z.ZodType<JsonObject> => forms.get(name) ?? JsonObject;

const clusterNetwork = ClusterNetworkSection.meta({
  id: "ClusterNetworkSection",
  examples: [{ interfaces: [{ nic: "ens4", clusterIP: "10.1.0.1" }] }],
});

/** Returns a section of a cluster in the same form. */
export const clusterSectionForm = (name: SectionName): z.ZodType<JsonObject> =>
  name === "network" ? clusterNetwork : sectionForm(name);
