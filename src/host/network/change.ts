/** One thing to do to the network of the machine; the kernel takes `nft` whole or not at all, `ip` line by line. */
export type Change =
  /** Lines for one `ip -batch -`: what is added first, then what goes. */
  | { readonly kind: "ip"; readonly lines: readonly string[] }
  /** Loads the whole table in one transaction; without a text the table goes. */
  | { readonly kind: "nft"; readonly text: string | undefined }
  | { readonly kind: "sysctl"; readonly values: readonly (readonly [name: string, value: string])[] }
  /** ethtool(8): speed and duplex; absent: negotiated. */
  | {
      readonly kind: "ethtool";
      readonly link: string;
      readonly fixed?: { readonly speedMbps: number; readonly duplex: "full" | "half" };
    }
  /** Starts or stops our DHCP client on the link; it may ignore the default route of its lease. */
  | { readonly kind: "dhcp"; readonly link: string; readonly run: boolean; readonly withoutGateway?: true }
  /** Sets the name servers; absent: hands them back to the system. */
  | { readonly kind: "resolver"; readonly servers: readonly string[] | undefined };
