import { z } from "zod";
import type { Engine } from "./engine.ts";
import { inPath, labelled, parsed, TextMap } from "./parse.ts";
import type { Transport } from "./transport.ts";

type Networks = Pick<
  Engine,
  "listNetworks" | "createNetwork" | "removeNetwork" | "connectNetwork" | "disconnectNetwork"
>;

const Network = z.object({
  Id: z.string(),
  Name: z.string(),
  Labels: TextMap,
  IPAM: z.object({ Config: z.array(z.object({ Subnet: z.string().optional() })).nullish() }).nullish(),
});
const Created = z.object({ Id: z.string() });

const CHANGE_MS = 30_000;

/** The Engine API's network calls. */
export function networks(transport: Transport): Networks {
  return {
    async listNetworks(labels, signal) {
      const call = { what: "cannot list networks", method: "GET", path: "/networks", query: labelled(labels) } as const;
      const { body } = await transport.send(call, signal);
      return parsed(z.array(Network), body, "the engine's list of networks").map((network) => ({
        id: network.Id,
        name: network.Name,
        subnets: (network.IPAM?.Config ?? []).flatMap(({ Subnet }) => (Subnet === undefined ? [] : [Subnet])),
        labels: network.Labels,
      }));
    },
    async createNetwork(network, signal) {
      const { name, driver, subnet, gateway, reserved, options, labels } = network;
      const addresses = { Subnet: subnet, Gateway: gateway, AuxiliaryAddresses: reserved };
      const body = {
        Name: name,
        CheckDuplicate: true, // names may be duplicate before version 1.44
        Driver: driver,
        IPAM: { Driver: "default", Config: [addresses] },
        Options: options,
        Labels: labels,
      };
      const call = { what: `cannot create network ${name}`, method: "POST", path: "/networks/create" } as const;
      const answer = await transport.send({ ...call, body, deadlineMs: CHANGE_MS }, signal);
      return { id: parsed(Created, answer.body, "the engine's answer").Id };
    },
    async removeNetwork(id, signal) {
      const what = `cannot remove network ${id}`;
      const path = `/networks/${inPath(id)}`;
      await transport.send({ what, method: "DELETE", path, accepts: [404], deadlineMs: CHANGE_MS }, signal);
    },
    async connectNetwork(network, container, { aliases, address }, signal) {
      const what = `cannot attach container ${container} to network ${network}`;
      const path = `/networks/${inPath(network)}/connect`;
      const ipam = address === undefined ? {} : { IPAMConfig: { IPv4Address: address } };
      const body = { Container: container, EndpointConfig: { Aliases: aliases, ...ipam } };
      await transport.send({ what, method: "POST", path, body, deadlineMs: CHANGE_MS }, signal);
    },
    async disconnectNetwork(network, container, signal) {
      const what = `cannot take container ${container} off network ${network}`;
      const path = `/networks/${inPath(network)}/disconnect`;
      const body = { Container: container, Force: true };
      await transport.send({ what, method: "POST", path, body, accepts: [404], deadlineMs: CHANGE_MS }, signal);
    },
  };
}
