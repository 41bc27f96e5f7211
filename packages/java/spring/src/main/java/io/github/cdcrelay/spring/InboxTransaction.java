package io.github.cdcrelay.spring;

import java.sql.Connection;
import java.util.concurrent.Callable;
import javax.sql.DataSource;
import org.springframework.jdbc.datasource.ConnectionHolder;
import org.springframework.jdbc.datasource.TransactionAwareDataSourceProxy;
import org.springframework.transaction.UnexpectedRollbackException;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;
import org.springframework.transaction.support.TransactionSynchronizationUtils;

/** Makes the inbox's transaction that of the handler's thread, as if a DataSourceTransactionManager had begun it. */
final class InboxTransaction {
    private InboxTransaction() {}

    /** Returns the pool by which Spring knows a transaction's connection. */
    static DataSource target(DataSource source) {
        var target = source instanceof TransactionAwareDataSourceProxy proxy ? proxy.getTargetDataSource() : source;
        return target == null ? source : target;
    }

    /**
     * Runs work in the transaction, which the inbox ends afterwards, in a thread of its own. So what waits for the
     * commit is not called, and what waits for the end gets STATUS_UNKNOWN.
     */
    static void run(DataSource source, Connection tx, Callable<?> work) throws Exception {
        var holder = new ConnectionHolder(tx, true);
        TransactionSynchronizationManager.bindResource(source, holder);
        TransactionSynchronizationManager.initSynchronization();
        TransactionSynchronizationManager.setActualTransactionActive(true);
        try {
            work.call();
            TransactionSynchronizationUtils.triggerBeforeCommit(false);
            if (holder.isRollbackOnly()) {
                throw new UnexpectedRollbackException("a method in the handler's transaction marked it to be rolled"
                        + " back, and the handler went on: let its exception pass");
            }
        } finally {
            end(source);
        }
    }

    private static void end(DataSource source) {
        try {
            TransactionSynchronizationUtils.triggerBeforeCompletion();
        } finally {
            var all = TransactionSynchronizationManager.getSynchronizations();
            TransactionSynchronizationManager.clear();
            TransactionSynchronizationManager.unbindResource(source);
            TransactionSynchronizationUtils.invokeAfterCompletion(all, TransactionSynchronization.STATUS_UNKNOWN);
        }
    }
}
