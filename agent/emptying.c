/* Removes what outlives processes in a container, and is in no volume that a runner could empty.
 *
 * Nothing runs beside this when it does so. Only what belongs to its uid is removed: the rest is of other containers. */

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"

enum {
    LISTED_BYTES_MAX = 32768,
    NAME_BYTES_MAX = 64,
    /* As the kernel numbers them, since Linux 4.17. Older headers have not all of them. */
    SHM_STATUS_OF_ANY = 15,
    SEM_STATUS_OF_ANY = 20,
    MSG_STATUS_OF_ANY = 13,
};

static long long deadline;
static unsigned hoisted;

static bool is_dots(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool is_own(int folder, const char *name, bool *is_folder) {
    struct stat found;
    if (fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    *is_folder = S_ISDIR(found.st_mode);
    return found.st_uid == getuid();
}

/* Remove what is in a folder; folders in it, which may be nested deeply, come right below the top. `top` may be it. */
static bool remove_entries(int top, int folder, bool *was_empty);

static bool remove_entry(int top, int folder, const char *name, bool is_folder) {
    bool was_empty = false;
    char new[NAME_BYTES_MAX];
    if (!is_folder)
        return unlinkat(folder, name, 0) == 0;
    if (unlinkat(folder, name, AT_REMOVEDIR) == 0)
        return true;
    /* Whoever made it may have taken every right to it away. */
    if (fchmodat(folder, name, 0700, 0) != 0)
        return false;
    if (folder != top) {
        do
            snprintf(new, sizeof new, ".rota-%u", hoisted++);
        while (renameat2(folder, name, top, new, RENAME_NOREPLACE) != 0 && errno == EEXIST && now_ms() < deadline);
        return true;
    }
    int inner = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0)
        return false;
    while (!was_empty && now_ms() < deadline && remove_entries(top, inner, &was_empty))
        ;
    close(inner);
    return unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

static bool remove_entries(int top, int folder, bool *was_empty) {
    /* Not more than two of them are being read at once: the top, and one right below it. */
    _Alignas(struct entry) static char rooms[2][LISTED_BYTES_MAX];
    char *room = rooms[folder != top];
    long length;
    *was_empty = true;
    if (lseek(folder, 0, SEEK_SET) != 0)
        return false;
    while ((length = syscall(SYS_getdents64, folder, room, LISTED_BYTES_MAX)) > 0) {
        for (long at = 0; at < length;) {
            struct entry *entry = (struct entry *)(void *)(room + at);
            bool is_folder = false;
            at += entry->length;
            if (is_dots(entry->name) || !is_own(folder, entry->name, &is_folder))
                continue;
            *was_empty = false;
            if (!remove_entry(top, folder, entry->name, is_folder) || now_ms() > deadline)
                return false;
        }
    }
    return length == 0;
}

bool empty_folder(const char *path) {
    bool was_empty = false;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return errno == ENOENT;
    deadline = now_ms() + CLEAR_MS_MAX;
    while (!was_empty && remove_entries(folder, folder, &was_empty))
        ;
    close(folder);
    return was_empty;
}

static bool is_ours(const struct ipc_perm *permission) {
    return permission->uid == getuid() || permission->cuid == getuid();
}

bool empty_ipc(void) {
    union {
        struct shmid_ds memory;
        struct msqid_ds queue;
        struct semid_ds set;
        struct shm_info memory_info;
        struct msginfo queue_info;
        struct seminfo set_info;
    } found;
    union semun {
        int value;
        struct semid_ds *set;
        struct seminfo *info;
    } argument;
    bool were_all = true;
    for (int at = shmctl(0, SHM_INFO, (void *)&found.memory_info); at >= 0; at--) {
        int id = shmctl(at, SHM_STATUS_OF_ANY, &found.memory);
        if (id >= 0 && is_ours(&found.memory.shm_perm))
            were_all = shmctl(id, IPC_RMID, NULL) == 0 && were_all;
    }
    for (int at = msgctl(0, MSG_INFO, (void *)&found.queue_info); at >= 0; at--) {
        int id = msgctl(at, MSG_STATUS_OF_ANY, &found.queue);
        if (id >= 0 && is_ours(&found.queue.msg_perm))
            were_all = msgctl(id, IPC_RMID, NULL) == 0 && were_all;
    }
    argument.info = &found.set_info;
    for (int at = semctl(0, 0, SEM_INFO, argument); at >= 0; at--) {
        argument.set = &found.set;
        int id = semctl(at, 0, SEM_STATUS_OF_ANY, argument);
        if (id >= 0 && is_ours(&found.set.sem_perm))
            were_all = semctl(id, 0, IPC_RMID) == 0 && were_all;
    }
    return were_all;
}
