// SPDX-License-Identifier: Apache-2.0
//
// See trust.h.
#include "hal/host/trust.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace pn::hal {

namespace {

enum class Use { searched, above, file };

bool owner_is_trusted(uid_t owner) {
  if (owner == 0 || owner == ::geteuid()) return true;
  struct stat exe {};
  return ::stat("/proc/self/exe", &exe) == 0 && exe.st_uid == owner;
}

// Called before threads start, so the static buffers of getpwuid and getgrgid are ours.
bool group_is_private(gid_t gid, uid_t owner) {
  if (gid == 0) return true;  // root's
  const struct passwd* user = ::getpwuid(owner);
  if (user == nullptr || user->pw_gid != gid) return false;
  const std::string name = user->pw_name;
  const struct group* group = ::getgrgid(gid);
  if (group == nullptr || name != group->gr_name) return false;
  for (char** member = group->gr_mem; *member != nullptr; ++member) {
    if (name != *member) return false;
  }
  return true;
}

Result<void> check_one(const std::string& path, Use use) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    return fail(errno == ENOENT ? Code::not_found : Code::failed,
                path + ": " + std::strerror(errno));
  }
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(st.st_mode & 07777));
  const std::string found = " (mode " + std::string(mode) + ", owner " + std::to_string(st.st_uid) +
                            ":" + std::to_string(st.st_gid) + ")";
  const bool sticky = use == Use::above && (st.st_mode & S_ISVTX) != 0;
  if (!owner_is_trusted(st.st_uid)) {
    return fail(Code::invalid, path + ": belongs to another user" + found +
                                   ", who could replace the plugin: chown it to root or to you");
  }
  if ((st.st_mode & S_IWOTH) != 0 && !sticky) {
    return fail(Code::invalid,
                path + ": others may write to it" + found + ": chmod o-w '" + path + "'");
  }
  const bool by_root = use == Use::above && st.st_uid == 0;  // /usr/local of older Debians: staff
  if ((st.st_mode & S_IWGRP) != 0 && !sticky && !by_root &&
      !group_is_private(st.st_gid, st.st_uid)) {
    return fail(Code::invalid,
                path + ": its group may write to it" + found + ": chmod g-w '" + path + "'");
  }
  return {};
}

// "/" always is.
bool is_above_executable(const std::string& folder) {
  std::unique_ptr<char, void (*)(void*)> exe(::realpath("/proc/self/exe", nullptr), std::free);
  if (exe == nullptr || folder == "/") return folder == "/";
  return std::string(exe.get()).compare(0, folder.size() + 1, folder + "/") == 0;
}

Result<void> check_chain(const std::string& path, Use use) {
  std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  if (real == nullptr) {
    return fail(errno == ENOENT ? Code::not_found : Code::failed,
                path + ": " + std::strerror(errno));
  }
  std::string at = real.get();
  do {
    PN_TRY(check_one(at, use));
    const size_t slash = at.rfind('/');
    at.resize(slash == 0 ? 1 : slash);
    use = Use::above;
  } while (!is_above_executable(at));
  return {};
}

}  // namespace

Result<void> check_folder(const std::string& folder) { return check_chain(folder, Use::searched); }

Result<void> check_file(const std::string& file) { return check_chain(file, Use::file); }

}  // namespace pn::hal
