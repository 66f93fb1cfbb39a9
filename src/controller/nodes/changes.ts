/** Stores changes that nodes' documents contain. */
export interface Changes<Parts> {
  /** Stores a change and the documents of the returned nodes in one transaction, then notifies those that are online. */
  apply(change: (tx: Parts) => Promise<Iterable<string>>): Promise<void>;
}
