import { z } from "zod";
import { Requires } from "../../values/features.ts";
import { Description, says, whole } from "../common/fields.ts";
import { Address, DeviceName, Flag, InterfaceAddress, Network, Nic } from "./fields.ts";

const text = () => z.string(says("must be text"));
const CIPHERS = ["aes128-sha1", "aes128-sha256", "aes256-sha1", "aes256-sha256"] as const;
const Cipher = z.enum(CIPHERS, says(`must be one of ${CIPHERS.join(", ")}`));
const GROUPS = [2, 5, 14, 15, 16] as const;
const WINDOWS = [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192] as const;
const TYPES = ["ipsec", "gre", "vnet", "wireguard"] as const;

/** 32 bytes in base64; an empty one is a secret that is kept. */
const Key = text().regex(/^(?:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)?$/, says("must be 32 bytes in base64"));

/** A tunnel to a device of another make, or into a virtual network. */
export const tunnelFields = {
  type: z.enum(TYPES, says(`must be one of ${TYPES.join(", ")}`)),
  name: DeviceName,
  enabled: Flag,
  mtu: whole(1000, 10_000),
  ip: InterfaceAddress.optional(),
  vrf: DeviceName.optional(),
  description: Description,
  networkId: whole(0, 2_147_483_647).optional(),
  destination: Address.optional(),
  iface: Nic.optional(),
  ike: z.literal([1, 2], says("must be 1 or 2")).optional(),
  ikeCipher: Cipher.optional(),
  ikeGroup: z.literal(GROUPS, says(`must be one of ${GROUPS.join(", ")}`)).optional(),
  ipsecCipher: Cipher.optional(),
  pfs: z.literal([0, ...GROUPS], says(`must be one of 0, ${GROUPS.join(", ")}`)).optional(),
  psk: text().max(1024, says("must have at most 1024 characters")).optional().meta({ description: "Never shown" }),
  localId: text().max(253, says("must have at most 253 characters")).optional(),
  remoteId: text().max(253, says("must have at most 253 characters")).optional(),
  localSubnet: Network.optional(),
  remoteSubnet: Network.optional(),
  dpdInterval: whole(1, 86_400).optional().meta({ description: "Seconds" }),
  dpdRetries: whole(1, 1000).optional(),
  rekeyInterval: whole(60, 2_592_000).optional().meta({ description: "Seconds" }),
  replayWindow: z.literal(WINDOWS, says(`must be one of ${WINDOWS.join(", ")}`)).optional(),
  auto: z.enum(["add", "start"], says("must be one of add, start")).optional(),
  publicKey: Key.optional(),
  presharedKey: Key.optional().meta({ description: "Never shown" }),
  requires: Requires,
} as const;

export const TunnelItem = z.looseObject(tunnelFields, says("must be an object"));

/** Required fields of each tunnel type. The ipsec secret is checked apart, since it may be the stored one. */
export const tunnelNeeds = {
  ipsec: ["destination", "ikeCipher", "ikeGroup", "ipsecCipher"],
  gre: ["destination"],
  vnet: ["networkId"],
  wireguard: ["publicKey", "ip"],
} as const;
