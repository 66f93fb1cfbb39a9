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
