import { Button, Group, Modal, Select } from "@mantine/core";
import { useState } from "react";
import { describeError } from "../../api/errors.ts";
import { useInjectFault } from "../../api/queries.ts";
import type { FaultSignal, JobDetail, Replica } from "../../api/types.ts";
import { WarnIcon } from "../../components/icons.tsx";
import css from "./Job.module.css";

const signals: { value: FaultSignal; label: string }[] = [
  { value: "KILL", label: "KILL: ends at once, as on a lost node" },
  { value: "TERM", label: "TERM: asked to end" },
  { value: "STOP", label: "STOP: hangs" },
  { value: "CONT", label: "CONT: goes on after STOP" },
];

interface InjectFaultProps {
  job: JobDetail;
  replica: Replica | null;
  onClose: () => void;
  onSent: (text: string) => void;
}

/** Asks once more, then signals the replica's processes. */
export function InjectFault({ job, replica, onClose, onSent }: InjectFaultProps) {
  const [signal, setSignal] = useState<FaultSignal>("KILL");
  const inject = useInjectFault(job.id);
  const close = () => {
    inject.reset();
    onClose();
  };
  const send = () => {
    if (!replica) return;
    inject.mutate(
      { replica_index: replica.index, signal },
      { onSuccess: (sent) => onSent(`${sent.signal} sent to ${sent.pods.join(", ")}`) },
    );
  };
  return (
    <Modal.Root opened={replica !== null} onClose={close} centered>
      <Modal.Overlay />
      <Modal.Content>
        {/* A plain div: a header here would be a second banner of the page. */}
        <Modal.Header {...{ component: "div" }}>
          <Modal.Title className={css.confirmTitle}>
            Inject a fault into replica {replica?.index}?
          </Modal.Title>
          <Modal.CloseButton aria-label="Close" />
        </Modal.Header>
        <Modal.Body>
          <div className={css.confirm}>
            <p>
              The signal goes to every process of <code>{replica?.pod_name}</code>. The job’s other
              replicas should go on by themselves.
            </p>
            <Select
              label="Signal"
              data={signals}
              value={signal}
              onChange={(value) => value && setSignal(value as FaultSignal)}
            />
            {inject.error ? (
              <p role="alert" className={css.refused}>
                <WarnIcon /> {describeError(inject.error)}
              </p>
            ) : null}
            <Group justify="flex-end" gap={8}>
              <Button variant="default" onClick={close} data-autofocus>
                Cancel
              </Button>
              <Button color="red" className={css.danger} loading={inject.isPending} onClick={send}>
                Send {signal}
              </Button>
            </Group>
          </div>
        </Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}
